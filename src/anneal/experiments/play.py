"""One campaign with an oracle in a person's place: the loop that people use, and a score after each round."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from anneal.archive.catalog import Archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import next_question
from anneal.campaign.rounds import Record
from anneal.campaign.turn import Learned, Training, begin, turn
from anneal.errors import UsageError
from anneal.experiments.curves import Row
from anneal.experiments.oracle import NAME, Oracle, Split, score
from anneal.method import placing
from anneal.method.diversity import DIVERSITIES
from anneal.method.labelling import LABELLERS, Labeller, Labels
from anneal.method.snapshot import Agenda, Snapshot
from anneal.method.strategies import Strategy, bcgue, chosen, mgue
from anneal.network.backbones import Backbone
from anneal.pairs import Answers, Pairs, Verdict
from anneal.settings import Settings, Stream

ODDS = 9  # similar to dissimilar, of the pairs that ``bcgue-at-0.9`` asks


def _bcgue_at_odds(settings: Settings) -> Callable[..., Agenda]:
    """BCGUE, with ½ where its classifier says 0.9."""

    def plan(snapshot: Snapshot, n: int, rng: Generator) -> Agenda:
        pairs = snapshot.probability
        shifted = None if pairs is None else replace(pairs, last_bias=pairs.last_bias - math.log(ODDS))
        return Agenda(bcgue(replace(snapshot, probability=shifted), n, rng, DIVERSITIES[settings.diversity]))

    return plan


ABLATIONS: dict[str, Callable[[Settings], Callable[..., Agenda]]] = {
    "no-joins": lambda own: partial(placing.plan, join=False, with_sheets=own.sheets > 0),
    "no-typical": lambda own: partial(placing.plan, typical=False, with_sheets=own.sheets > 0),
    "doubt-alone": lambda own: partial(placing.plan, soon=False, with_sheets=own.sheets > 0),
    "own-doubt": lambda own: partial(placing.plan, neighbourhood=False, with_sheets=own.sheets > 0),
    "pair-vector-sum": lambda own: partial(mgue, settings=own, diversity=DIVERSITIES["kmeans-sum"]),
    "pair-vector-product": lambda own: partial(mgue, settings=own, diversity=DIVERSITIES["kmeans-product"]),
    "bcgue-at-0.9": _bcgue_at_odds,
    "budget-3200000": lambda own: partial(mgue, settings=own, budget=3_200_000),
    "budget-800000": lambda own: partial(mgue, settings=own, budget=800_000),
}
"""Plans that only experiments make, from a strategy's settings."""


class NothingLeftError(UsageError):
    """There are not enough questions for a round."""


@dataclass(frozen=True)
class Player:
    """A strategy with its settings, how far it goes and what it is told at the start."""

    settings: Settings
    rounds: int  # after the first
    start: str = "cold"  # or labelled:N, the classes of N random images, as in the paper
    noise: float = 0.0  # share of wrong answers
    overlooked: float = 0.0  # share of the wrong guesses on sheets that the oracle does not see
    training: Training = field(default_factory=Training)
    ablation: str = ""  # one of ABLATIONS

    def __post_init__(self) -> None:
        if self.noise and self.labeller is not None:
            raise UsageError(f"--noise is for answers on pairs: {self.settings.strategy} asks for classes.")
        if not 0 <= self.noise < 0.5:
            raise UsageError(f"--noise {self.noise}: give the share of wrong answers, from 0 to below 0.5.")
        if not 0 <= self.overlooked <= 1:
            raise UsageError(f"--overlooked {self.overlooked}: give a share from 0 to 1.")
        if self.rounds < 0:
            raise UsageError("--rounds takes 0 or more.")
        self.strategy  # noqa: B018 - refuses a name that does not exist
        self.labelled  # noqa: B018 - refuses what cannot be read

    @property
    def labeller(self) -> Labeller | None:
        return LABELLERS.get(self.settings.strategy)

    @property
    def strategy(self) -> Strategy:
        """What asks about pairs. A labeller's campaign asks about none."""
        if self.labeller is not None:
            return Strategy(self.settings.strategy, lambda *_: Agenda(), lambda *_: Pairs.none())
        strategy = chosen(self.settings)
        return replace(strategy, plan=ABLATIONS[self.ablation](self.settings)) if self.ablation else strategy

    @property
    def labelled(self) -> int:
        """How many images get a class label at the start; 0 for a cold start."""
        kind, _, number = self.start.partition(":")
        if kind == "cold" and not number:
            return 0
        if kind == "labelled" and number.isdigit() and int(number) > 1:
            return int(number)
        raise UsageError(f"--start {self.start!r}: give cold, or labelled:N with N images, say labelled:84.")

    def with_seed(self, seed: int) -> Player:
        return replace(self, settings=replace(self.settings, seed=seed))

    def about(self) -> dict[str, Any]:
        """The player as JSON gives it back: lists for tuples."""
        return dict(json.loads(json.dumps(asdict(self))))

    def open(self, folder: Path, archive: Archive, split: Split, backbone: Backbone) -> Campaign:
        """The player's campaign in a folder, to go on with; made if there is none."""
        about = self.about()
        if not Campaign.is_made(folder):
            campaign = begin(
                folder, archive, self.settings, images=split.train, strategy=self.strategy, backbone=backbone
            )
        else:
            campaign = Campaign.open(folder, self.strategy)
            stopped_early = {**about, "settings": asdict(campaign.settings)}
            changed = changes(campaign.store.setting("player", stopped_early), about)
            if campaign.size != len(archive):
                changed.append("archive")
            elif not np.array_equal(campaign.images, split.train):
                changed.append("split")
            if changed:
                campaign.close()
                what = ", ".join(changed)
                raise UsageError(f"{folder} was played with another {what}: give a new --out.")
        campaign.store.set(player=about)
        return campaign


def changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names of what differs between two players. How far they go does not count."""
    names = []
    for name, value in now.items():
        if isinstance(value, dict):
            names += changes(before.get(name, {}), value)
        elif name != "rounds" and before.get(name) != value:
            names.append(name)
    return names


def play(
    campaign: Campaign,
    player: Player,
    oracle: Oracle,
    split: Split,
    backbone: Backbone,
    pinned: Collection[int] = (),
) -> Iterator[Record]:
    """Play to the last round; yields the record of each, with its row of the curve. What was played before is
    read, not played again. The models that served after the ``pinned`` rounds are kept."""
    yield from campaign.rounds.records()[: player.rounds + 1]
    while campaign.rounds.current <= player.rounds:
        _teach(campaign, player, oracle)
        finish = partial(_finish_round, campaign, player, oracle, split)
        served = [record.serving for record in campaign.rounds.records() if record.number in pinned]
        turn(campaign, backbone, training=player.training, pinned={*pinned, *served}, then=finish)
        yield campaign.rounds.records()[-1]


def _teach(campaign: Campaign, player: Player, oracle: Oracle) -> None:
    """The oracle's part of a round."""
    if campaign.rounds.current == 0 and (player.labelled or player.labeller):
        if not campaign.store.labels():
            _give_first_labels(campaign, player, oracle)
        return
    if player.labeller is not None:  # the labels were given when the last round ended
        return
    while question := next_question(campaign, NAME):
        verdict = oracle.verdict(question.pair, campaign.log().given, question.guess)
        campaign.answer(*question.pair, verdict, NAME, sheet=question.sheet, guess=question.guess)
    if not campaign.is_round_over():
        settings = campaign.settings
        given = campaign.log().news(campaign.rounds.seen)
        raise NothingLeftError(
            f"Round {campaign.rounds.current} of {settings.strategy} was to ask {settings.per_round} pairs "
            f"but only {given} were still unknown: lower --per-round or --rounds. Earlier rounds are kept."
        )


def _give_first_labels(campaign: Campaign, player: Player, oracle: Oracle) -> None:
    settings = campaign.settings
    train = campaign.images
    if not player.labelled:
        snapshot = Snapshot(campaign.rounds.vectors(), train, campaign.known())
        return _label(campaign, player, oracle, snapshot, Labels(np.empty(0, dtype=np.int64)))
    if player.labelled > len(train):
        raise UsageError(f"--start {player.start} wants more images than the {len(train)} of training.")
    images = settings.rng(Stream.FIRST_LABELS).choice(train, player.labelled, replace=False)
    campaign.label(oracle.labels(images), NAME, settings.strategy)
    return None


def _label(campaign: Campaign, player: Player, oracle: Oracle, snapshot: Snapshot, labels: Labels) -> None:
    """Class labels for the images the labeller chooses: as many as a round's bits pay for."""
    assert player.labeller is not None
    settings = campaign.settings
    n = round(settings.per_round / oracle.bits_per_label)
    rng = settings.rng(Stream.CHOOSE_LABELS, campaign.rounds.current)
    images = player.labeller.choose(snapshot, labels, n, rng)
    campaign.label(oracle.labels(images), NAME, settings.strategy)


def _finish_round(campaign: Campaign, player: Player, oracle: Oracle, split: Split, learned: Learned) -> None:
    """Note the row of the curve. A labeller's next labels are chosen from what was just learnt; after the
    last round too, because a longer run may go on from there."""
    record = campaign.rounds.records()[-1]
    campaign.rounds.save(replace(record, curve=_curve_row(campaign, oracle, split, learned, record)))
    if player.labeller is not None:
        _label(campaign, player, oracle, learned.snapshot, learned.labels)


def _curve_row(campaign: Campaign, oracle: Oracle, split: Split, learned: Learned, record: Record) -> Row:
    log = campaign.log()
    labels = len(campaign.store.labels())
    snapshot = learned.snapshot
    this_round = snapshot.rounds == record.number
    if record.number == 0 and not this_round.any():
        this_round = snapshot.rounds < 0  # pairs that the first labels stand for
    verdicts = snapshot.answers.verdicts[this_round]
    similar = round(float(np.mean(verdicts == Verdict.SIMILAR)), 4) if len(verdicts) else ""
    asked = snapshot.rounds >= 0
    given = Answers(snapshot.answers.pairs[asked], snapshot.answers.verdicts[asked])
    return {
        "strategy": campaign.settings.strategy,
        "round": record.number,
        "bits": round(log.given + labels * oracle.bits_per_label),
        "answers": log.given + labels,
        "acts": log.effort.presses + labels,
        "labels": labels,
        "implied": int(campaign.evidence().closure.relations.implied(given)),
        "similar_share": similar,
        "threshold": round(record.threshold, 4),
        **score(campaign.rounds.vectors(), split, oracle.classes),
    }
