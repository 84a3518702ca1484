"""A finish for a campaign with many answers: fine-tune the network itself, and let it serve if it is better.

One image in five is reserved. No fine-tuned network ever learns from these, so they tell how well a network
does on new images. Two models are compared on them: a head on the network as it is, and the fine-tuned
network with its head. Neither head has learnt from the reserved images. If the fine-tuned network wins, a
head is trained on it with all answers, and this is a round like any other.
"""

from dataclasses import dataclass, replace

import numpy as np

from anneal.campaign import guidance, heldout, tuning
from anneal.campaign.campaign import Campaign
from anneal.campaign.intact import NETWORKS
from anneal.campaign.networks import Origin, network_of, origin_of, remove_unused
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.turn import membership_of, new_record, take
from anneal.errors import UsageError
from anneal.method import paired
from anneal.method.groups import with_pseudo_labels
from anneal.method.paired import Comparison
from anneal.method.relations import Relations
from anneal.network import encode, tune
from anneal.network.backbones import Backbone
from anneal.network.model import Shape
from anneal.network.train import Fit, fit
from anneal.network.tune import Part, Tune, Tuned
from anneal.pairs import Ids
from anneal.settings import Stream
from anneal.watch import Watch, unwatched
from anneal.words import count

RESERVED = 0.2  # share of the images that no fine-tuned network learns from
MOST = 20_000  # images to train on, at most: their maps take about 90 kB each
TWICE = 2  # times the steps of a round: the heads that are compared start anew


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    adopted: bool
    why: str  # a sentence
    compared: Comparison
    round: int | None = None  # whose model serves now

    def __str__(self) -> str:
        before = self.compared.before
        after = self.compared.after
        gain = self.compared.gain
        one = f"{100 * before.value:.1f} ({100 * before.low:.1f} to {100 * before.high:.1f})"
        other = f"{100 * after.value:.1f} ({100 * after.low:.1f} to {100 * after.high:.1f})"
        change = f"{100 * gain.value:+.1f} points ({100 * gain.low:+.1f} to {100 * gain.high:+.1f}, 80 %)"
        images = count(self.compared.images, "reserved image")
        return f"mAP@5 of {images}: {one} before, {other} after; {change}. {self.why}"


@dataclass(frozen=True)
class Candidate:
    """A fine-tuned network that may serve."""

    part: Part
    record: Record  # of the round that it would be
    tuned: Tuned
    compared: Comparison


def finetune(
    campaign: Campaign,
    part: Part = "last",
    backbone: Backbone | None = None,
    watch: Watch = unwatched,
    settings: Tune | None = None,
) -> Outcome:
    """Fine-tune the last stage of the network, or all of it, on what the answers imply. The result serves if
    it is better on the reserved images, and if the held-out answers do not speak against it. Else, and if
    the process is killed, the campaign stays as it was. The caller holds the worker's lock."""
    return adopt(campaign, train(campaign, part, backbone, watch, settings), backbone, watch)


def train(
    campaign: Campaign,
    part: Part = "last",
    backbone: Backbone | None = None,
    watch: Watch = unwatched,
    settings: Tune | None = None,
) -> Candidate:
    """Fine-tune, and compare before and after on the reserved images. Nothing is written."""
    if refusal := tuning.refusal(campaign):
        raise UsageError(refusal)
    record = replace(new_record(campaign), tuned=part)  # before the answers are read: later ones are news
    known = campaign.evidence().closure.relations
    reserved = reserved_images(campaign, known)
    taught = _taught(campaign, known, reserved)
    origin = origin_of(campaign, backbone)
    return Candidate(part, record, *_tune(campaign, origin, part, known, taught, reserved, watch, settings))


def adopt(
    campaign: Campaign, candidate: Candidate, backbone: Backbone | None = None, watch: Watch = unwatched
) -> Outcome:
    """Let a fine-tuned network serve if it is better: a head is trained on it with all answers."""
    compared = candidate.compared
    if not compared.is_better:
        return Outcome(False, _stays(compared), compared)
    remove_unused(campaign)
    folder = campaign.folder / "rounds" / NETWORKS
    pretrained = network_of(campaign, backbone)
    name = tune.save(folder, candidate.tuned.backbone, pretrained)
    network = tune.load(folder / f"{name}.safetensors", pretrained)
    origin = Origin(network, candidate.tuned.encoder, name)
    learned = take(campaign, origin, candidate.record, watch, must_serve=True)
    if learned is None:
        remove_unused(campaign)
        worse = "But by the held-out answers it is worse than the serving model, so nothing has changed."
        return Outcome(False, worse, compared)
    heldout.prune(campaign)
    guidance.decide(campaign)
    return Outcome(True, "The fine-tuned network serves from now on.", compared, candidate.record.number)


def reserved_images(campaign: Campaign, known: Relations) -> Ids:
    """Of the images with a known pair, those that no fine-tuned network learns from: always the same."""
    return np.intersect1d(known.members, _reserve(campaign))


def _reserve(campaign: Campaign) -> Ids:
    return np.flatnonzero(campaign.settings.rng(Stream.RESERVED).random(campaign.size) < RESERVED)


def _taught(campaign: Campaign, known: Relations, reserved: Ids) -> Relations:
    """What to learn from: what is known without the reserved images, and pseudo-labels."""
    settings = campaign.settings
    rng = settings.rng(Stream.TUNE, campaign.rounds.current, 0)
    taught = known.without(reserved)
    if settings.pseudo_labels and campaign.rounds.has_vectors(FROZEN):
        membership = membership_of(campaign, campaign.rounds.vectors(FROZEN), taught, rng)
        if membership is not None:
            guessed = with_pseudo_labels(membership, taught, settings.pseudo_labels)
            taught = guessed.without(_reserve(campaign))
    if len(taught.members) > MOST:
        kept = rng.choice(taught.members, MOST, replace=False)
        taught = taught.without(np.setdiff1d(taught.members, kept))
    return taught


def _tune(
    campaign: Campaign,
    origin: Origin,
    part: Part,
    known: Relations,
    taught: Relations,
    reserved: Ids,
    watch: Watch,
    settings: Tune | None,
) -> tuple[Tuned, Comparison]:
    """Fine-tune, and compare before and after on the reserved images."""
    own = campaign.settings
    rng = own.rng(Stream.TUNE, campaign.rounds.current, 1)
    archive = campaign.archive()
    network = origin.network
    needed = np.union1d(taught.members, reserved)
    maps = tune.maps(archive, network, part, needed, own.views, watch("encoding"))
    stored = encode.inputs(archive, network, "head", watch("encoding"), own.views)
    recipe = Fit.at("head", loss=own.loss).times(TWICE).knowing(len(taught.members), len(campaign.images))
    fitted = fit(
        network,
        "head",
        stored,
        taught,
        recipe,
        rng,
        images=np.setdiff1d(campaign.images, reserved),
        shape=Shape(anchored=own.head == "anchored"),
        progress=watch("learning"),
    )
    start = fitted.encoder
    chosen = replace(settings or Tune(), loss=own.loss)
    tuned = tune.tune(maps, part, start, taught, chosen, rng, watch("tuning"))
    before = encode.vectors(start, network, stored[reserved], ["head"])["head"]
    features = tune.features(tuned.backbone, maps, part, reserved)
    after = encode.vectors(tuned.encoder, tuned.backbone, features, ["head"])["head"]
    compared = paired.compare(
        paired.average_precision(before, known, reserved), paired.average_precision(after, known, reserved)
    )
    if compared is None:
        raise UsageError("No two similar images are among those reserved: answer more questions first.")
    return tuned, compared


def _stays(compared: Comparison) -> str:
    if compared.gain.value <= 0:
        return "The fine-tuned network finds less, so nothing has changed."
    return "That may be chance, so nothing has changed: more answers can tell."
