"""The machine's turn, as the paper tells it: infer → fit → embed → mine → diversify → ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anneal import backbones, embed, model, uncertainty
from anneal.archive import Archive, Progress, silent
from anneal.backbones import Backbone
from anneal.campaign import Campaign, Plan
from anneal.diversity import DIVERSITIES
from anneal.errors import UsageError
from anneal.index import unit
from anneal.kept import disk
from anneal.model import Depth, Encoder, Shape, Space, searched
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict
from anneal.strategies import Select, Snapshot, Strategy, cold, named
from anneal.train import Fit, Fitted, class_probabilities, fit
from anneal.transitivity import CLOSURES, Closure, none

Watch = Callable[[str], Progress]
"""A progress bar for each named step."""


def unwatched(step: str) -> Progress:
    return silent


@dataclass(frozen=True)
class Learned:
    """What the machine made of the answers, and what it may ask about next."""

    fitted: Fitted
    closure: Closure
    vectors: Floats  # (n, d) unit rows, every image in the new metric space
    snapshot: Snapshot
    alpha: float  # MGUE's threshold α_t; nan until both kinds of pair are known
    seconds: dict[str, float] = field(default_factory=dict)


def learn(
    backbone: Backbone,
    kept: NDArray[Any],
    images: Ids,
    answers: Answers,
    plan: Plan,
    rng: np.random.Generator,
    *,
    labels: dict[int, int] | None = None,
    start: Encoder | None = None,
    watch: Watch = unwatched,
) -> Learned:
    """Infer what the answers imply, fit the encoder to it, embed every image.

    ``kept`` is what ``embed.inputs`` returned, ``images`` those that may be asked about, ``labels`` the
    class numbers of labelled images where the strategy asks for classes, ``start`` the encoder of the
    round before where training begins with it.
    """
    seconds: dict[str, float] = {}
    strategy, depth = strategy_of(plan), cast(Depth, plan.depth)
    classes = _class_column(len(kept), labels) if strategy.label and labels else None
    with timed(seconds, "infer"):
        closure = CLOSURES[plan.closure](len(kept), answers)
    with timed(seconds, "fit"):
        settings = Fit.at(depth, plan.recipe, loss=plan.loss, gamma=plan.gamma).times(plan.length)
        fitted = fit(
            backbone,
            depth,
            kept,
            closure.relations,
            settings,
            rng,
            images=images,
            shape=Shape(anchored=plan.head == "anchored", classifier=plan.widths),
            pair_classifier=strategy.pair_classifier,
            classes=classes,
            metric=strategy.metric or classes is None,
            start=start,
            progress=watch("learning"),
        )
    with timed(seconds, "embed"):
        search = searched(depth)
        asked = search if plan.space == "search" else cast(Space, plan.space)
        wanted = {search, asked, *(("head",) if fitted.softmax else ())}
        spaces = embed.vectors(fitted.encoder, backbone, kept, wanted, watch("embedding"))
        snapshot = Snapshot(
            spaces[asked],
            images,
            closure.relations,
            probability=fitted.classifier and fitted.classifier.scorer(spaces[search]),
            classes=class_probabilities(fitted, spaces["head"]) if fitted.softmax else None,
            labelled=None if labels is None else np.array(sorted(labels), dtype=np.int64),
        )
    with timed(seconds, "threshold"):
        found = uncertainty.moments(snapshot.vectors, closure.relations)
        alpha = uncertainty.mgue_threshold(found, plan.lam)
    return Learned(fitted, closure, spaces[search], snapshot, alpha, seconds)


def strategy_of(plan: Plan) -> Strategy:
    return named(plan.strategy, plan.lam, DIVERSITIES[plan.diversity])


def first_questions(frozen: Floats, images: Ids, n: int, rng: np.random.Generator) -> Pairs:
    """Questions before anything is known, from the frozen features alone."""
    known = none(len(frozen), Answers.none()).relations
    return cold(Snapshot(unit(frozen), images, known), n, rng)


def begin(folder: Path, archive: Archive, plan: Plan, watch: Watch = unwatched) -> Campaign:
    """A new campaign: every image encoded, and the first questions in the queue."""
    _pairs_only(plan)
    Campaign.refuse_if_made(folder)  # before anything of it is written over
    backbone = backbones.load(plan.backbone)
    images = np.arange(len(archive))
    if len(images) < 2:
        raise UsageError("One image alone has no other to be like: an archive needs two at least.")
    frozen = embed.inputs(archive, backbone, "head", watch("encoding"), plan.views)
    embed.inputs(archive, backbone, cast(Depth, plan.depth), watch("encoding"), plan.views)
    save_vectors(folder / "rounds" / "frozen", unit(frozen))
    pairs = first_questions(frozen, images, plan.per_round, plan.rng(3))
    return Campaign.create(folder, archive, plan, images, pairs)


def turn(campaign: Campaign, backbone: Backbone, watch: Watch = unwatched) -> Learned:
    """One whole turn of a campaign: learn from every answer, keep model and vectors, ask anew."""
    plan, store = campaign.plan, campaign.store
    select = _pairs_only(plan)
    answers = campaign.evidence()
    if not len(answers.given(Verdict.SIMILAR)) + len(answers.given(Verdict.DISSIMILAR)):
        raise UsageError(
            f"There is nothing to learn from in {campaign.folder} yet: no pair has been judged "
            "similar or dissimilar. Answer some of the queued pairs first."
        )
    number = len(store.rounds())
    depth = cast(Depth, plan.depth)
    kept = embed.inputs(campaign.archive(), backbone, depth, watch("encoding"), plan.views)
    start = started(campaign, backbone, number)
    rng = plan.rng(1, number)
    learned = learn(backbone, kept, campaign.images, answers, plan, rng, start=start, watch=watch)
    with timed(learned.seconds, "ask"):
        pairs = select(learned.snapshot, plan.per_round, plan.rng(2, number))
    save_model(campaign, learned.fitted.encoder, number)
    save_vectors(campaign.round_folder(number), learned.vectors)
    note = {"alpha": learned.alpha, "loss": learned.fitted.loss, "answers": len(answers)}
    store.finish_round(number, {**note, "seconds": learned.seconds}, pairs, plan.strategy)
    return learned


def started(campaign: Campaign, backbone: Backbone, number: int) -> Encoder | None:
    """What a round's training begins with: the encoder of the round before, if the plan is warm and
    it is there; else the pretrained weights."""
    before = campaign.round_folder(number - 1)
    if campaign.plan.restart == "cold" or number == 0 or not (before / "model.json").exists():
        return None
    return model.load(before, backbone)


def save_model(campaign: Campaign, encoder: Encoder, number: int) -> None:
    plan = campaign.plan
    about = {"anneal_plan": asdict(plan), "backbone": plan.backbone, "round": number}
    model.save(campaign.round_folder(number), encoder, about)


def _pairs_only(plan: Plan) -> Select:
    select = strategy_of(plan).select
    if select is None:
        raise UsageError(f"--strategy {plan.strategy} asks for classes; a campaign asks about pairs.")
    return select


def save_vectors(folder: Path, vectors: Floats) -> None:
    with disk(folder / "vectors.npy"):
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / "vectors.tmp.npy"
        np.save(part, vectors)
        part.replace(folder / "vectors.npy")


def _class_column(n: int, labels: dict[int, int]) -> Ids:
    column = np.full(n, -1, dtype=np.int64)
    column[list(labels)] = list(labels.values())
    return column


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = round(time.perf_counter() - start, 3)
