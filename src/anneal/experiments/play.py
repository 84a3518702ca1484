"""A campaign with an oracle in the person's place, and the learning curve it draws.

The oracle and the score know the classes; the learner sees what it is told and nothing else.
"""

from __future__ import annotations

import csv
import io
import json
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anneal.archive.catalog import SPLITS, Archive
from anneal.archive.pixels import write_text
from anneal.campaign.campaign import Campaign, Pair, pairs_of
from anneal.campaign.store import Questions
from anneal.campaign.turn import (
    Learned,
    Watch,
    ask,
    first_questions,
    learn,
    save_model,
    started,
    strategy_of,
    timed,
    unwatched,
)
from anneal.errors import UsageError
from anneal.experiments import plots
from anneal.method import metrics
from anneal.method.neighbours import nearest, unit
from anneal.method.strategies import Snapshot, Strategy
from anneal.network import encode
from anneal.network.backbones import Backbone
from anneal.network.model import Depth
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict
from anneal.settings import Plan

COLUMNS = (
    "strategy", "trial", "round", "bits", "answers", "implied", "similar_share", "alpha",
    "map5_min", "map5_hits", "map5_all", "p5", "p5_class", "seconds",
)  # fmt: skip
K = 5
Row = dict[str, Any]
"""A line of the learning curve, by COLUMNS."""


@dataclass(frozen=True)
class Simulation:
    """What to play: the plan of the campaign, and how often."""

    plan: Plan
    strategies: tuple[str, ...] = ("mgue", "random")
    rounds: int = 5
    trials: int = 1
    initial: str = "cold"  # or labelled:N, class labels for N images as in the paper
    noise: float = 0.0  # of the oracle's answers are wrong, each by chance

    def __post_init__(self) -> None:
        for name in self.strategies:
            strategy = strategy_of(replace(self.plan, strategy=name))
            if strategy.label is not None and self.noise:
                raise UsageError(f"--noise is of answers on pairs, and {name} asks for classes.")
        if len(set(self.strategies)) < len(self.strategies):
            raise UsageError("--strategy names one strategy twice.")
        if not 0 <= self.noise < 0.5:
            raise UsageError(f"--noise {self.noise}: give the share of wrong answers, from 0 to below 0.5.")
        if self.rounds < 0 or self.trials < 1:
            raise UsageError("--rounds takes 0 or more and --trials 1 or more.")
        self.labelled  # noqa: B018 - says so now if it cannot be read

    @property
    def labelled(self) -> int:
        """How many images get a class label at the start; 0 for a cold start."""
        kind, _, number = self.initial.partition(":")
        if kind == "cold" and not number:
            return 0
        if kind == "labelled" and number.isdigit() and int(number) > 1:
            return int(number)
        raise UsageError(
            f"--initial {self.initial!r}: give cold, or labelled:N with N images, say labelled:84."
        )


@dataclass(frozen=True)
class Split:
    train: Ids
    val: Ids  # the queries
    test: Ids  # what is retrieved from


@dataclass(frozen=True)
class Truth:
    """What the oracle knows: the class of every image."""

    classes: Ids
    names: tuple[str, ...]

    @classmethod
    def of(cls, archive: Archive) -> Truth:
        classes = archive.classes
        if (classes < 0).any():
            unlabelled = int((classes < 0).sum())
            raise UsageError(
                f"The oracle needs the class of every image and {unlabelled} have none: put the images "
                "in one folder a class, or give a manifest with a column 'class'."
            )
        names = tuple(sorted(set(archive.labels)))
        if len(names) < 2:
            raise UsageError(f"All images are of one class ({names[0]}): there is nothing to tell apart.")
        return cls(classes, names)

    @property
    def bits_per_label(self) -> float:
        return math.log2(len(self.names))

    def verdicts(self, pairs: Pairs, wrong: bool = False) -> list[int]:
        same = (self.classes[pairs.a] == self.classes[pairs.b]) != wrong
        return [int(Verdict.SIMILAR if s else Verdict.DISSIMILAR) for s in same]


def split_of(archive: Archive, seed: int) -> Split:
    """The archive's own split; else 80 / 10 / 10 at random."""
    if any(archive.splits):
        column = np.array(archive.splits)
        parts = [np.flatnonzero(column == name) for name in SPLITS]
    else:
        parts = _tenths(len(archive), seed, 0)
    if not all(len(part) for part in parts):
        sizes = ", ".join(str(len(part)) for part in parts)
        raise UsageError(
            f"Of {len(archive)} images training, validation and test would get {sizes}: each must have "
            "some. Ten images are the least, or a manifest that names all three splits."
        )
    return Split(*parts)


def inner_split(archive: Archive, seeds: Iterable[int], seed: int) -> Split:
    """Where settings are chosen: the images that all of these seeds train on, split again. None of them
    is a query or a result of any."""
    splits = [split_of(archive, other) for other in seeds]
    always = np.flatnonzero(np.bincount(np.concatenate([s.train for s in splits])) == len(splits))
    return Split(*(always[part] for part in _tenths(len(always), seed, 1)))


def _tenths(n: int, seed: int, purpose: int) -> list[Ids]:
    """0 … n-1 parted at random into eight tenths, one and one."""
    order = np.random.default_rng([seed, purpose]).permutation(n)
    tenth = n // 10
    return [np.sort(part) for part in (order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth])]


def score(vectors: Floats, split: Split, classes: Ids) -> dict[str, float]:
    """Validation images as queries, retrieved from the test images, k = 5."""
    found = nearest(vectors, split.test, vectors[split.val], K).ids
    relevant = classes[found] == classes[split.val][:, None]
    total = (classes[split.val][:, None] == classes[split.test][None, :]).sum(axis=1)
    meanings: tuple[metrics.Meaning, ...] = ("min", "hits", "all")
    scores = {
        f"map5_{meaning}": metrics.mean(metrics.average_precision(relevant, total, meaning))
        for meaning in meanings
    }
    p5 = metrics.precision(relevant, total)
    own = [p5[classes[split.val] == c] for c in np.unique(classes[split.val])]
    by_class = [metrics.mean(some) for some in own if np.isfinite(some).any()]
    return {**scores, "p5": metrics.mean(p5), "p5_class": float(np.mean(by_class))}


@dataclass(frozen=True)
class Stage:
    """What every trial shares: images, truth, network, and the frozen part's output."""

    archive: Archive
    truth: Truth
    backbone: Backbone
    kept: NDArray[Any]  # what the encoder eats
    frozen: Floats  # pooled features without any training

    @classmethod
    def of(cls, archive: Archive, backbone: Backbone, plan: Plan, watch: Watch = unwatched) -> Stage:
        """Encode the archive, or find it encoded."""
        frozen = encode.inputs(archive, backbone, "head", watch("encoding"), plan.views)
        kept = encode.inputs(archive, backbone, cast(Depth, plan.depth), watch("encoding"), plan.views)
        return cls(archive, Truth.of(archive), backbone, kept, frozen)


Tell = Callable[[Row], None]
"""Called with each row of the curve as it is finished."""


def untold(row: Row) -> None:
    pass


def simulate(
    stage: Stage, simulation: Simulation, out: Path, watch: Watch = unwatched, tell: Tell = untold
) -> list[Row]:
    """Play every strategy in every trial, going on where an earlier run stopped. ``curve.csv`` is
    written after each round, ``run.json`` after each campaign, ``curve.png`` after each trial."""
    archive, truth = stage.archive, stage.truth
    _same_run(out, simulation, archive)
    rows: list[Row] = []
    about = _about(simulation, archive, truth)
    write_text(out / "run.json", json.dumps(about, indent=1))
    for trial in range(simulation.trials):
        plan = replace(simulation.plan, seed=simulation.plan.seed + trial)
        split = split_of(archive, plan.seed)
        about["frozen"].append(score(unit(stage.frozen), split, truth.classes))
        for name in simulation.strategies:
            folder = out / "trials" / f"{name.replace(':', '.')}-{trial}"
            campaign = campaign_at(folder, archive, replace(plan, strategy=name), split.train)
            for row, seconds in play(stage, campaign, split, simulation, trial, watch):
                rows.append(row)
                about["seconds"].append([name, trial, row["round"], seconds])
                write_text(out / "curve.csv", to_csv(rows))
                tell(row)
            campaign.close()
            write_text(out / "run.json", json.dumps(about, indent=1))
        untrained = float(np.mean([scores["map5_min"] for scores in about["frozen"]]))
        title = f"{archive.root.name}, {plan.backbone}, depth {plan.depth}, {simulation.initial}"
        plots.curve(rows, out / "curve.png", frozen=untrained, title=title)
    return rows


def play(
    stage: Stage,
    campaign: Campaign,
    split: Split,
    simulation: Simulation,
    trial: int,
    watch: Watch = unwatched,
) -> Iterator[tuple[Row, dict[str, float]]]:
    """One campaign from its first question to its last: for each round a row of the curve and the
    seconds of each step. Rounds that were played before are read back, not played again."""
    plan, store, truth = campaign.plan, campaign.store, stage.truth
    finished = store.rounds()[: simulation.rounds + 1]
    for _, about in finished:
        yield about["row"], about["seconds"]
    learned: Learned | None = None
    for number in range(len(finished), simulation.rounds + 1):
        if number and learned is None:  # going on with a run that was stopped
            learned = replay(stage, campaign, number - 1, watch)
        _answer(stage, campaign, simulation, number, learned)
        learned = replay(stage, campaign, number, watch)
        if plan.restart == "warm":
            save_model(campaign, learned.fitted.encoder, number)
        with timed(learned.seconds, "ask"):
            questions, lean = _ask(campaign, truth, learned, number)
        asked, labels, given = store.answers(), store.labels(number), store.given()
        fresh = store.answers(number, since=number) if number else campaign.evidence(0)
        row: Row = {
            "strategy": plan.strategy,
            "trial": trial,
            "round": number,
            "bits": round(given + len(labels) * truth.bits_per_label),
            "answers": given + len(labels),
            "implied": learned.closure.relations.implied(asked),
            "similar_share": _share(fresh),
            "alpha": round(learned.alpha, 4),
            **score(learned.vectors, split, truth.classes),
            "seconds": round(sum(learned.seconds.values()), 2),
        }
        store.finish_round(number, {"row": row, "lean": lean, "seconds": learned.seconds}, questions)
        yield row, learned.seconds


def replay(stage: Stage, campaign: Campaign, number: int, watch: Watch = unwatched) -> Learned:
    """What the machine learns in a round, the same each time."""
    labels = campaign.store.labels(number)
    return learn(
        stage.backbone,
        stage.kept,
        campaign.images,
        campaign.evidence(number),
        campaign.plan,
        campaign.plan.rng(1, number),
        labels={i: stage.truth.names.index(name) for i, name in labels.items()},
        start=started(campaign, stage.backbone, number),
        frozen=unit(stage.frozen),
        watch=watch,
    )


def _answer(
    stage: Stage, campaign: Campaign, simulation: Simulation, number: int, learned: Learned | None
) -> None:
    """The oracle's turn: it answers a round's questions, each in the light of those before where the strategy
    goes one by one, and again what may be a slip. A stopped run goes on where it was."""
    plan, store, strategy = campaign.plan, campaign.store, strategy_of(campaign.plan)
    if number == 0 and simulation.labelled:
        if not store.labels():
            images = _draw(campaign.images, simulation.labelled, plan.rng(3))
            _give_labels(campaign, stage.truth, images, 0)
        return
    frozen = unit(stage.frozen)
    start = learned.snapshot if learned else Snapshot(frozen, campaign.images, campaign.before(number))
    if strategy.select is None:
        if number == 0 and not store.labels():  # afterwards classes are given as soon as they are asked
            _label(campaign, stage.truth, start, 0)
        return
    given = store.given(number)
    if strategy.order is not None:
        following = _one_by_one(campaign, start, strategy, number)
    else:
        if number == 0 and not given:
            store.queue(first_questions(stage.frozen, campaign.images, plan.per_round, plan.rng(3)))
        following = _queued(campaign, number)
        if not plan.recheck and not simulation.noise:  # nothing depends on the answers: all in one step
            left = pairs_of(following)
            if given + len(left) < plan.per_round:
                raise _no_more(plan, number, given + len(left))
            campaign.answer_all(left, stage.truth.verdicts(left), "oracle")
            return
    told = campaign.evidence(number - 1) if number and plan.recheck else Answers.none()
    against = campaign.against(told, start.known, frozen, number)
    for k in range(given, plan.per_round):
        pair = next(iter(campaign.second_look(start.vectors, against)), None) or next(following, None)
        if pair is None:
            raise _no_more(plan, number, k)
        asked = Pairs.of([pair[0]], [pair[1]])
        wrong = simulation.noise and plan.rng(8, store.given()).random() < simulation.noise
        verdicts = stage.truth.verdicts(asked, bool(wrong))
        campaign.answer_all(asked, verdicts, "oracle", strategy.name if strategy.order else None)


def _one_by_one(campaign: Campaign, start: Snapshot, strategy: Strategy, number: int) -> Iterator[Pair]:
    """The questions of a strategy that decides each by the answers before it."""
    plan = campaign.plan
    assert strategy.select is not None
    assert strategy.order is not None
    order = strategy.order(start, plan.per_round, plan.rng(7, number))
    while True:
        now = replace(start, known=campaign.closure().relations, order=order)
        found = strategy.select(now, 1, plan.rng(7, number, campaign.store.given(number)))
        if not len(found):
            return
        yield from found


def _queued(campaign: Campaign, number: int) -> Iterator[Pair]:
    """The questions that stand in the queue and have not been asked in this round."""
    asked = {(row.a, row.b) for row in campaign.store.acts(number)}
    yield from (pair for pair in campaign.store.questions().pairs if pair not in asked)


def _no_more(plan: Plan, number: int, left: int) -> UsageError:
    return UsageError(
        f"Round {number} of {plan.strategy} was to ask {plan.per_round} pairs but only {left} are "
        "still unknown: ask for fewer with --per-round or --rounds. The rounds before it are kept."
    )


def _ask(campaign: Campaign, truth: Truth, learned: Learned, number: int) -> tuple[Questions, float]:
    """The next questions; a strategy that asks for classes has them answered at once."""
    plan, strategy = campaign.plan, strategy_of(campaign.plan)
    if strategy.select is not None and strategy.order is None:
        return ask(campaign, learned, strategy.select, number)
    if strategy.select is not None:  # it asks when its turn comes
        return Questions.of(Pairs.none(), number + 1, plan.strategy), 0.0
    if len(campaign.store.labels()) == len(campaign.store.labels(number)):  # not before a stop
        _label(campaign, truth, learned.snapshot, number + 1)
    return Questions.of(Pairs.none(), number + 1, plan.strategy), 0.0


def _label(campaign: Campaign, truth: Truth, snapshot: Snapshot, number: int) -> None:
    """A strategy that asks for classes asks for as many as the bits of a round pay for."""
    plan, label = campaign.plan, strategy_of(campaign.plan).label
    assert label is not None
    n = round(plan.per_round / truth.bits_per_label)
    _give_labels(campaign, truth, label(snapshot, n, plan.rng(2, max(number - 1, 0))), number)


def _give_labels(campaign: Campaign, truth: Truth, images: Ids, number: int) -> None:
    labels = [(i, truth.names[truth.classes[i]]) for i in images.tolist()]
    campaign.store.add_labels(labels, annotator="oracle", strategy=campaign.plan.strategy, round=number)


def _draw(images: Ids, n: int, rng: np.random.Generator) -> Ids:
    if n > len(images):
        raise UsageError(
            f"--initial labelled:{n} wants more images than the {len(images)} of the training split."
        )
    return rng.choice(images, n, replace=False)


def _share(answers: Answers) -> float | str:
    """Similar ones among the answers; empty where no pair was judged."""
    return round(len(answers.given(Verdict.SIMILAR)) / len(answers), 4) if len(answers) else ""


def campaign_at(folder: Path, archive: Archive, plan: Plan, images: Ids) -> Campaign:
    """The campaign in a folder, to go on with; made, if there is none."""
    if not Campaign.is_made(folder):
        return Campaign.create(folder, archive, plan, images)
    campaign = Campaign.open(folder)
    old, new = asdict(campaign.plan), asdict(plan)
    changed = [name for name in new if old[name] != new[name]]
    changed += ["archive"] * (campaign.size != len(archive))
    if changed:
        raise UsageError(f"{folder} was played with another {', '.join(changed)}: give a new --out.")
    return campaign


def to_csv(rows: Iterable[Row], columns: Sequence[str] = COLUMNS) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()


def versions() -> dict[str, str]:
    packages = ("anneal", "numpy", "scipy", "scikit-learn", "torch", "transformers", "pillow")
    return {"python": platform.python_version()} | {p: version(p) for p in packages}


def _about(simulation: Simulation, archive: Archive, truth: Truth) -> dict[str, Any]:
    return {
        "settings": asdict(simulation),
        "archive": {
            "root": str(archive.root),
            "images": len(archive),
            "classes": len(truth.names),
            "skipped": [list(entry) for entry in archive.skipped],
            "duplicates": [[archive.paths[i] for i in group] for group in archive.duplicates],
        },
        "versions": versions(),
        "frozen": [],  # scores without any training, one a trial
        "seconds": [],  # [strategy, trial, round, {step: seconds}]
    }


def _same_run(out: Path, simulation: Simulation, archive: Archive) -> None:
    """Refuse to go on with another run's folder; more rounds, trials or strategies are welcome."""
    try:
        before = json.loads((out / "run.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    old, new = before["settings"], json.loads(json.dumps(asdict(simulation)))
    changed = [k for k in new["plan"] if k != "strategy" and old["plan"].get(k) != new["plan"][k]]
    changed += ["initial"] * (old["initial"] != new["initial"])
    changed += ["noise"] * (old.get("noise", 0.0) != new["noise"])
    changed += ["archive"] * (before["archive"]["images"] != len(archive))
    if changed:
        raise UsageError(
            f"{out} holds a run with another {', '.join(changed)}: give a new --out, or remove it."
        )
