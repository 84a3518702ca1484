"""The machine's turn, as the paper tells it: infer → fit → embed → mine → diversify → ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anneal.archive.catalog import Archive, Progress, silent
from anneal.archive.pixels import disk
from anneal.campaign import heldout, judging, progress
from anneal.campaign.campaign import FROZEN, Campaign
from anneal.campaign.store import Questions
from anneal.errors import UsageError
from anneal.method import uncertainty
from anneal.method.diversity import DIVERSITIES
from anneal.method.groups import pool, presumed, spread
from anneal.method.mining import pairwise
from anneal.method.neighbours import unit
from anneal.method.relations import CLOSURES, Closure, Relations, none
from anneal.method.strategies import Select, Snapshot, Strategy, cold, levels, mgue_limit, named
from anneal.network import backbones, encode, model
from anneal.network.backbones import Backbone
from anneal.network.model import Depth, Encoder, Shape, Space, searched
from anneal.network.train import Fit, Fitted, class_probabilities, fit
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict
from anneal.settings import Plan

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
    frozen: Floats | None = None,
    watch: Watch = unwatched,
) -> Learned:
    """Infer what the answers imply, fit the encoder to it, embed every image.

    ``kept`` is what ``embed.inputs`` returned, ``images`` those that may be asked about, ``labels`` the
    class numbers of labelled images where the strategy asks for classes, ``start`` the encoder of the
    round before where training begins with it, ``frozen`` every image before anything was learnt, by which
    groups are presumed of images that have none.
    """
    seconds: dict[str, float] = {}
    strategy, depth = strategy_of(plan), cast(Depth, plan.depth)
    classes = _class_column(len(kept), labels) if strategy.label and labels else None
    with timed(seconds, "infer"):
        closure = CLOSURES[plan.closure](len(kept), answers)
        taught, likely = closure.relations, None
        if frozen is not None and len(taught.members) and (plan.presume or strategy.order):
            likely = spread(frozen, pool(images, taught, rng), taught)
        if plan.presume and likely is not None:
            taught = presumed(likely, taught, plan.presume)
            classes = None if classes is None else _presumed_classes(classes, taught)
    with timed(seconds, "fit"):
        settings = Fit.at(depth, plan.recipe, loss=plan.loss, gamma=plan.gamma).times(plan.length)
        settings = settings.knowing(len(closure.relations.members), len(images))
        fitted = fit(
            backbone,
            depth,
            kept,
            taught,
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
        spaces = encode.vectors(fitted.encoder, backbone, kept, wanted, watch("embedding"))
        snapshot = Snapshot(
            spaces[asked],
            images,
            closure.relations,
            likely=likely,
            probability=fitted.classifier and fitted.classifier.scorer(spaces[search]),
            classes=class_probabilities(fitted, spaces["head"]) if fitted.softmax else None,
            labelled=None if labels is None else np.array(sorted(labels), dtype=np.int64),
            asked=answers,
        )
    with timed(seconds, "threshold"):
        alpha = mgue_limit(snapshot, plan.lam, plan.threshold)
    return Learned(fitted, closure, spaces[search], snapshot, alpha, seconds)


def strategy_of(plan: Plan) -> Strategy:
    found = named(plan.strategy, plan.lam, DIVERSITIES[plan.diversity], plan.threshold)
    if found.order is not None and plan.closure != "full":
        raise UsageError(f"--strategy {plan.strategy} builds on groups of images: it needs --closure full.")
    return found


def first_questions(frozen: Floats, images: Ids, n: int, rng: np.random.Generator) -> Questions:
    """Questions before anything is known, from the frozen features alone."""
    known = none(len(frozen), Answers.none()).relations
    vectors = unit(frozen)
    pairs = cold(Snapshot(vectors, images, known), n, rng)
    found = levels(vectors, images, pairwise(vectors, pairs), rng)
    return Questions.of(pairs, 0, "cold", found.tolist())


def ask(campaign: Campaign, learned: Learned, select: Select, number: int) -> tuple[Questions, float]:
    """The questions of the round after this one, and the lean they were picked with."""
    rng = campaign.plan.rng(2, number)
    snapshot = learned.snapshot
    level = float(levels(snapshot.vectors, snapshot.images, learned.alpha, rng))
    lean = campaign.lean(level)
    pairs = select(replace(snapshot, lean=lean), campaign.plan.per_round, rng)
    return Questions.of(pairs, number + 1, campaign.plan.strategy), lean


def begin(
    folder: Path, archive: Archive, plan: Plan, watch: Watch = unwatched, images: Ids | None = None
) -> Campaign:
    """A new campaign: every image encoded, and the first questions in the queue; they are about ``images``,
    or about all."""
    _pairs_only(plan)
    Campaign.refuse_if_made(folder)  # before anything of it is written over
    backbone = backbones.load(plan.backbone)
    images = np.arange(len(archive)) if images is None else images
    if len(images) < 2:
        raise UsageError("One image alone has no other to be like: an archive needs two at least.")
    frozen = encode.inputs(archive, backbone, "head", watch("encoding"), plan.views)
    encode.inputs(archive, backbone, cast(Depth, plan.depth), watch("encoding"), plan.views)
    vectors, known = unit(frozen), none(len(frozen), Answers.none()).relations
    start = folder / "rounds" / "frozen"
    save(start, vectors=vectors, top=heldout.top(vectors, images, plan.rng(5)))
    lot = heldout.first(vectors, images, known, plan)
    if strategy_of(plan).order is None:
        asked = first_questions(frozen, images, plan.per_round, plan.rng(3))
    else:
        asked = put_in_order(start, Snapshot(vectors, images, known), plan, 0)
    first = heldout.mixed(asked, lot.asked)
    return Campaign.create(folder, archive, plan, images, first, lot.kept)


def put_in_order(folder: Path, snapshot: Snapshot, plan: Plan, number: int) -> Questions:
    """Keep what a round is to ask about; its questions are made one by one as the answers come in, so there
    are none yet."""
    order = strategy_of(plan).order
    assert order is not None
    found = order(snapshot, plan.per_round, plan.rng(7, number))
    joins = np.column_stack([found.joins.a, found.joins.b])
    save(folder, joins=joins, order=found.images, beside=found.beside)
    return Questions.of(Pairs.none(), number, plan.strategy)


def turn(campaign: Campaign, backbone: Backbone, watch: Watch = unwatched) -> Learned:
    """One whole turn of a campaign: learn from every answer, keep model and vectors, ask anew. What serves
    then is the new model, or the one that did before if the held-back answers say that the new is worse."""
    plan, store = campaign.plan, campaign.store
    select = _pairs_only(plan)
    row, cost = store.newest(), progress.cost(campaign)  # before the answers: what comes in later is news
    answers = campaign.evidence()
    if not len(answers.given(Verdict.SIMILAR)) + len(answers.given(Verdict.DISSIMILAR)):
        raise UsageError(
            f"There is nothing to learn from in {campaign.folder} yet: no pair has been judged "
            "similar or dissimilar. Answer some of the queued pairs first."
        )
    number = len(store.rounds())
    depth = cast(Depth, plan.depth)
    kept = encode.inputs(campaign.archive(), backbone, depth, watch("encoding"), plan.views)
    start = started(campaign, backbone, number)
    rng = plan.rng(1, number)
    frozen = campaign.vectors_of(FROZEN) if (campaign.round_folder(FROZEN) / "vectors.npy").exists() else None
    learned = learn(
        backbone, kept, campaign.images, answers, plan, rng, start=start, frozen=frozen, watch=watch
    )
    choosing, folder = watch("choosing"), campaign.round_folder(number)
    choosing(0, 1)
    with timed(learned.seconds, "audit"):
        lot = heldout.draw(campaign, learned.vectors, learned.closure.relations, number)
        top = heldout.top(learned.vectors, campaign.images, plan.rng(5))
        save_model(campaign, learned.fitted.encoder, number)
        save(folder, vectors=learned.vectors, top=top)
        serves = judging.decide(campaign, number, lot.kept)
    with timed(learned.seconds, "ask"):
        used, lean = learned if serves == number else as_before(campaign, learned, serves), 0.0
        if campaign.one_by_one:
            asked = put_in_order(folder, used.snapshot, plan, number + 1)
        else:
            asked, lean = ask(campaign, used, select, number)
        if plan.recheck and frozen is not None:
            against = campaign.against(answers, learned.closure.relations, frozen)
            save(folder, against=np.column_stack([against.a, against.b]))
    choosing(1, 1)
    told = {"alpha": learned.alpha, "limit": _limit(learned.vectors, answers), "loss": learned.fitted.loss}
    about = {**cost, "row": row, "serves": serves, "lean": lean, **told, "seconds": learned.seconds}
    store.finish_round(number, about, heldout.mixed(asked, lot.asked), lot.kept)
    campaign.release(asked)
    return learned


def as_before(campaign: Campaign, learned: Learned, serves: int) -> Learned:
    """What was learnt of the answers, in the space of an earlier model."""
    vectors = campaign.vectors_of(serves)
    snapshot = replace(learned.snapshot, vectors=vectors, probability=None, classes=None)
    alpha = mgue_limit(snapshot, campaign.plan.lam, campaign.plan.threshold)
    return replace(learned, vectors=vectors, snapshot=snapshot, alpha=alpha)


def _limit(vectors: Floats, answers: Answers) -> float:
    """From which similarity on the model calls a pair similar, going by the pairs that were judged."""
    similar, dissimilar = answers.given(Verdict.SIMILAR), answers.given(Verdict.DISSIMILAR)
    kinds = np.repeat([True, False], [len(similar), len(dissimilar)])
    return uncertainty.limit(pairwise(vectors, similar.then(dissimilar)), kinds)


def started(campaign: Campaign, backbone: Backbone, number: int) -> Encoder | None:
    """What a round's training begins with: the encoder in service before it, if the plan is warm and
    it is there; else the pretrained weights."""
    before = campaign.serving(before=number)
    folder = campaign.round_folder(before)
    if campaign.plan.restart == "cold" or before == FROZEN or not (folder / "model.json").exists():
        return None
    return model.load(folder, backbone)


def save_model(campaign: Campaign, encoder: Encoder, number: int) -> None:
    plan = campaign.plan
    about = {"anneal_plan": asdict(plan), "backbone": plan.backbone, "round": number}
    model.save(campaign.round_folder(number), encoder, about)


def _pairs_only(plan: Plan) -> Select:
    select = strategy_of(plan).select
    if select is None:
        raise UsageError(f"--strategy {plan.strategy} asks for classes; a campaign asks about pairs.")
    return select


def save(folder: Path, **arrays: NDArray[Any]) -> None:
    """Keep arrays under their names, each written beside and put in place in one step."""
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        with disk(path):
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{name}.tmp.npy"
            np.save(part, array)
            part.replace(path)


def _class_column(n: int, labels: dict[int, int]) -> Ids:
    column = np.full(n, -1, dtype=np.int64)
    column[list(labels)] = list(labels.values())
    return column


def _presumed_classes(classes: Ids, taught: Relations) -> Ids:
    """The class of each group for all that are presumed to be in it."""
    of_group = np.full(taught.links.shape[0], -1, dtype=np.int64)
    labelled = np.flatnonzero(classes >= 0)
    of_group[taught.group[labelled]] = classes[labelled]
    return np.where(classes >= 0, classes, of_group[taught.group])


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = round(time.perf_counter() - start, 3)
