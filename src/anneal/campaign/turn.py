"""The machine's turn, as the paper tells it: infer → fit → embed → plan the next questions."""

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from anneal.archive.catalog import Archive, open_archive
from anneal.archive.reading import Reading
from anneal.campaign import duplicates, guidance, heldout, neighbours
from anneal.campaign.campaign import Campaign, refuse_if_made
from anneal.campaign.networks import Origin, network_of, origin_of
from anneal.campaign.recheck import doubtful_separations, earlier_suspects, recheck_rate
from anneal.campaign.rounds import FROZEN, Record, Round
from anneal.errors import UsageError
from anneal.method.groups import Membership, candidates, likely_groups, spread_labels, with_pseudo_labels
from anneal.method.labelling import Labels
from anneal.method.mining import pairwise
from anneal.method.relations import Relations, none
from anneal.method.snapshot import Snapshot
from anneal.method.strategies import Strategy, chosen, mgue_threshold
from anneal.method.uncertainty import best_cutoff
from anneal.network import backbones, encode, model, train
from anneal.network.backbones import Backbone
from anneal.network.model import Depth, Encoder, Shape, Space
from anneal.network.train import Fit, Fitted, class_probabilities, fit
from anneal.pairs import Answers, Floats, Ids, Verdict
from anneal.settings import Settings, Stream
from anneal.watch import Watch, unwatched
from anneal.work import Workers


@dataclass(frozen=True)
class Training:
    """What only experiments vary; the defaults are the product's."""

    recipe: str = "anneal"  # or paper
    length: int = 1  # times as long as the recipe says
    gamma: float = 0.03  # weight of BCGUE's classifier in the loss
    widths: tuple[int, int] = (64, 32)  # of its first two layers
    space: str = "search"  # where pairs to ask are compared: search (as retrieval does), backbone or head
    classes: bool = False  # a softmax on the class labels too
    metric: bool = True  # the metric loss; without it the softmax alone
    regression: bool = True  # guess likely groups by a regression too, not by label spreading alone
    doubt: bool = True  # do not push groups apart whose separation is doubtful


@dataclass(frozen=True)
class Learned:
    """What the machine made of the answers."""

    fitted: Fitted
    vectors: Floats  # (n, d) unit rows: every image in the new space
    snapshot: Snapshot  # what the strategy sees
    labels: Labels


def create(
    images: Path | str, campaign: Path | str, settings: Settings | None = None, watch: Watch = unwatched
) -> Campaign:
    """Make a campaign in the folder ``campaign`` on a folder of images: read and encode every image once, and
    plan the first questions. Stopped, it goes on where it was."""
    settings = settings or Settings()
    backbone = backbones.load(backbones.fetch(settings.backbone))  # refused before any image is read
    archive = open_archive(
        Path(images), settings.px, Path(campaign) / "cache", watch("reading"), reading=Reading.of(settings)
    )
    return begin(Path(campaign), archive, settings, watch, backbone=backbone, source=Path(images))


def begin(
    folder: Path,
    archive: Archive,
    settings: Settings,
    watch: Watch = unwatched,
    *,
    images: Ids | None = None,
    strategy: Strategy | None = None,
    backbone: Backbone | None = None,
    workers: Workers | None = None,
    source: Path | None = None,
) -> Campaign:
    """Make a campaign: encode every image and plan the first questions. They are about ``images``, or about
    all but duplicates. The ``source`` is the manifest, if the images were read by one."""
    refuse_if_made(folder)  # before anything of it is overwritten
    backbone = backbones.for_bands(
        backbone or backbones.load(backbones.fetch(settings.backbone)), archive.reading.kernels
    )
    every = np.arange(len(archive)) if images is None else images
    if len(every) < 2:
        raise UsageError("A campaign needs at least two images.")
    strategy = chosen(settings) if strategy is None else strategy
    stored = partial(encode.inputs, progress=watch("encoding"), views=settings.views, workers=workers)
    features = stored(archive, backbone, "head")
    stored(archive, backbone, cast(Depth, settings.depth))
    files = Round.of(folder, FROZEN)
    vectors = files.save_features(features)
    near = duplicates.find(archive, vectors, every, progress=watch("comparing")) if images is None else None
    twice = {} if near is None else duplicates.retired(archive, near, {})
    images = every[~np.isin(every, list(twice))]
    files.save_nearest(heldout.query_results(vectors, images, settings.rng(Stream.QUERIES)))
    files.index_vectors()
    known = none(len(vectors), Answers.none()).relations
    snapshot = Snapshot(vectors, images, known, workers=workers)
    files.save_agenda(strategy.plan(snapshot, settings.per_round, settings.rng(Stream.PLAN, 0)))
    drawn = heldout.first(vectors, images, known, settings)
    name = "." if source is None or source.is_dir() else source.name
    return Campaign.create(
        folder, archive, settings, every, drawn, strategy, duplicates=twice, near=near, source=name
    )


def turn(
    campaign: Campaign,
    backbone: Backbone | None = None,
    watch: Watch = unwatched,
    *,
    training: Training | None = None,
    pinned: Collection[int] = (),
    then: Callable[[Learned], None] | None = None,
    workers: Workers | None = None,
) -> Learned:
    """Learn from every answer, save the round, and plan what to ask next. The new model serves, unless the
    held-out answers say that it is worse. The files of ``pinned`` rounds are never removed. ``then`` is
    called when the round is saved, in the same transaction. The ``workers`` encode images and mine pairs."""
    record = new_record(campaign)  # before the answers are read: later ones are news
    if not campaign.known().count_groups(1):
        raise UsageError(
            "There is nothing to learn from: no pair is similar or dissimilar. Answer some questions first."
        )
    origin = origin_of(campaign, backbone)
    learned = take(campaign, origin, record, watch, training=training, then=then, workers=workers)
    assert learned is not None
    heldout.prune(campaign, pinned)
    guidance.decide(campaign)
    return learned


def take(
    campaign: Campaign,
    origin: Origin,
    record: Record,
    watch: Watch,
    *,
    training: Training | None = None,
    then: Callable[[Learned], None] | None = None,
    workers: Workers | None = None,
    must_serve: bool = False,
) -> Learned | None:
    """Learn, choose which model serves, plan, and save the round. None if the new model ``must_serve`` and is
    worse than the serving one: then its files are removed, and nothing is saved."""
    rounds = campaign.rounds
    number = record.number
    seconds: dict[str, float] = {}
    learned = learn(campaign, origin, training or Training(), seconds, watch, workers)
    choosing = watch("choosing")
    choosing(0, 1)
    files = rounds.files(number)
    about = {"settings": asdict(campaign.settings), "round": number, "network": origin.name}
    model.save(files.folder, learned.fitted.encoder, about)
    with timed(seconds, "heldout"):
        queries = campaign.settings.rng(Stream.QUERIES)
        files.save_nearest(heldout.query_results(learned.vectors, campaign.images, queries))
        drawn = heldout.more(campaign, learned.vectors, learned.snapshot.known, number)
        serving = heldout.choose_serving(campaign, number, drawn)
    if must_serve and serving != number:
        files.remove()
        return None
    if serving == number:
        with timed(seconds, "index"):
            files.index_vectors()
    with timed(seconds, "plan"):
        rate = recheck_rate(campaign, number + 1)
        snapshot = learned.snapshot
        if serving != number:  # what was learnt from the answers, in the space of an earlier model
            snapshot = replace(snapshot, vectors=rounds.vectors(serving), probability=None)
        _plan_next(campaign, snapshot, number, rate)
    files.training.unlink(missing_ok=True)
    choosing(1, 1)
    record = replace(
        record,
        serving=serving,
        threshold=mgue_threshold(snapshot, campaign.settings),
        cutoff=_cutoff(learned.vectors, learned.snapshot.answers),
        loss=learned.fitted.loss,
        recheck_rate=rate,
        seconds=seconds,
        files=files.checksums(),
    )
    with campaign.transaction():
        rounds.save(record, drawn)
        if then is not None:
            then(learned)
    return learned


def learn(
    campaign: Campaign,
    origin: Origin,
    training: Training,
    seconds: dict[str, float],
    watch: Watch,
    workers: Workers | None = None,
) -> Learned:
    """Infer what the answers imply, fit the encoder to it, embed every image. The vectors are saved."""
    settings = campaign.settings
    depth = cast(Depth, settings.depth)
    backbone = origin.network
    number = campaign.rounds.current
    rng = settings.rng(Stream.FIT, number)
    stored = encode.inputs(campaign.archive(), backbone, depth, watch("encoding"), settings.views, workers)
    frozen = campaign.rounds.vectors(FROZEN) if campaign.rounds.has_vectors(FROZEN) else None
    with timed(seconds, "infer"):
        evidence = campaign.evidence()
        known = evidence.closure.relations
        membership = membership_of(campaign, frozen, known, rng, training.regression)
        taught = known
        if settings.pseudo_labels and membership is not None:
            taught = with_pseudo_labels(membership, known, settings.pseudo_labels)
        if frozen is not None and training.doubt:
            taught = taught.unlinked(doubtful_separations(campaign, frozen))
        classes = _class_column(campaign, taught) if training.classes else None
    with timed(seconds, "fit"):
        recipe = Fit.at(depth, training.recipe, loss=settings.loss, gamma=training.gamma)
        recipe = recipe.times(training.length).knowing(len(known.members), len(campaign.images))
        fitted = fit(
            backbone, depth, stored, taught, recipe, rng,
            images=campaign.images,
            shape=_shape(settings, training),
            pair_classifier=campaign.strategy.pair_classifier,
            classes=classes,
            metric=training.metric or classes is None,
            start=origin.start,
            checkpoint=campaign.rounds.files(number).training,
            progress=watch("learning"),
        )  # fmt: skip
    with timed(seconds, "embed"):
        search = fitted.encoder.space
        asked = search if training.space == "search" else cast(Space, training.space)
        wanted: set[Space] = {search, asked} if fitted.softmax is None else {search, asked, "head"}
        spaces = _embed(campaign, backbone, fitted.encoder, stored, wanted, watch)
    snapshot = Snapshot(
        spaces[asked],
        campaign.images,
        known,
        evidence.answers,
        evidence.rounds,
        frozen=frozen,
        membership=membership,
        probability=None if fitted.classifier is None else fitted.classifier.scorer(spaces[search]),
        agenda=campaign.rounds.agenda(),
        workers=workers,
    )
    probability = None if fitted.softmax is None else class_probabilities(fitted, spaces["head"])
    labelled = np.array(sorted(campaign.store.labels()), dtype=np.int64)
    return Learned(fitted, spaces[search], snapshot, Labels(labelled, probability))


def _embed(
    campaign: Campaign,
    backbone: Backbone,
    encoder: Encoder,
    stored: NDArray[Any],
    wanted: Collection[Space],
    watch: Watch,
) -> dict[Space, Floats]:
    """Every image in the wanted spaces. The vectors that are searched are the round's file: those of a
    million images do not fit in memory."""
    search = encoder.space
    files = campaign.rounds.files(campaign.rounds.current)
    width = encoder.dim if search == "backbone" else encoder.shape.out
    with files.new_vectors(len(stored), width) as rows:
        spaces = encode.vectors(encoder, backbone, stored, wanted, watch("embedding"), {search: rows})
    return {**spaces, search: files.vectors()}


def assist(campaign: Campaign) -> None:
    """Help the main process to train, in a process that a launcher started beside it. Nothing is written."""
    settings = campaign.settings
    backbone = origin_of(campaign).network
    depth = cast(Depth, settings.depth)
    stored = encode.inputs(campaign.archive(), backbone, depth, views=settings.views)
    train.assist(backbone, depth, stored)


def encode_images(
    campaign: Campaign, pixels: NDArray[np.uint8], number: int, backbone: Backbone | None = None
) -> Floats:
    """(m, px, px, bands) images from outside the archive → (m, d) vectors in the space of a round's model."""
    settings = campaign.settings
    backbone = network_of(campaign, backbone, number)
    encoder = None if number == FROZEN else model.load(campaign.rounds.files(number).folder, backbone)
    folder = campaign.archive_folder
    return encode.query(pixels, backbone, cast(Depth, settings.depth), encoder, settings.views, folder)


def new_record(campaign: Campaign) -> Record:
    """The record of a round that begins now, with what the answers so far have cost."""
    number = campaign.rounds.current
    log = campaign.log()
    labels = campaign.store.labels()
    bits = log.given + len(labels) * math.log2(max(len(set(labels.values())), 1))
    minutes = round(log.looked / 60_000, 2)
    answers = log.given + len(labels)
    return Record(number, log.newest, number, answers=answers, bits=round(bits, 1), minutes=minutes)


def membership_of(
    campaign: Campaign,
    frozen: Floats | None,
    known: Relations,
    rng: np.random.Generator,
    regression: bool = True,
) -> Membership | None:
    """The likely group of images by the frozen features, where something needs it."""
    needed = campaign.settings.pseudo_labels or campaign.strategy.groups
    if frozen is None or not needed or not len(known.members):
        return None
    images = candidates(campaign.images, known, rng)
    guess = likely_groups if regression else spread_labels
    return guess(frozen, images, known, neighbours.by_frozen(campaign, frozen, images))


def _shape(settings: Settings, training: Training) -> Shape:
    """The paper trains a head and searches without it. With depth ``head`` nothing else is trained."""
    dropped = training.recipe == "paper" and settings.depth != "head"
    return Shape(anchored=settings.head == "anchored", dropped=dropped, classifier=training.widths)


def _plan_next(campaign: Campaign, snapshot: Snapshot, number: int, rate: float) -> None:
    """Save what the next round asks about, and earlier answers to ask again."""
    settings = campaign.settings
    files = campaign.rounds.files(number)
    agenda = campaign.strategy.plan(snapshot, settings.per_round, settings.rng(Stream.PLAN, number + 1))
    files.save_agenda(agenda)
    if settings.recheck and snapshot.frozen is not None:
        files.save_suspects(earlier_suspects(campaign, snapshot.frozen, rate))


def plan_again(campaign: Campaign, workers: Workers | None = None) -> None:
    """Plan the questions of the current round anew, because there are other images now."""
    rounds = campaign.rounds
    number = rounds.current - 1
    records = rounds.records()
    evidence = campaign.evidence()
    known = evidence.closure.relations
    frozen = rounds.vectors(FROZEN) if records and rounds.has_vectors(FROZEN) else None
    rng = campaign.settings.rng(Stream.FIT, number + 1)
    snapshot = Snapshot(
        rounds.vectors(),
        campaign.images,
        known,
        evidence.answers,
        evidence.rounds,
        frozen=frozen,
        membership=membership_of(campaign, frozen, known, rng),
        agenda=rounds.agenda(),
        workers=workers,
    )
    _plan_next(campaign, snapshot, number, records[-1].recheck_rate if records else 1.0)


def _cutoff(vectors: Floats, answers: Answers) -> float:
    """The similarity from which the model calls a pair similar, by the pairs that were judged."""
    settled = answers.verdicts != Verdict.UNSURE
    s = pairwise(vectors, answers.pairs[settled])
    return best_cutoff(s, answers.verdicts[settled] == Verdict.SIMILAR)


def _class_column(campaign: Campaign, taught: Relations) -> Ids:
    """(n,) the class of each image as a number, −1 without one. Images of a group have the group's class."""
    labels = campaign.store.labels()
    names = sorted(set(labels.values()))
    column = np.full(campaign.size, -1, dtype=np.int64)
    column[list(labels)] = [names.index(label) for label in labels.values()]
    of_group = np.full(taught.links.shape[0], -1, dtype=np.int64)
    labelled = np.flatnonzero(column >= 0)
    of_group[taught.group[labelled]] = column[labelled]
    return np.where(column >= 0, column, of_group[taught.group])


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[step] = round(time.perf_counter() - start, 3)
