"""What fine-tuning brings: campaigns of ``place``, fine-tuned at half of the answers and at the end."""

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from anneal.archive.catalog import Archive
from anneal.campaign import finetune
from anneal.campaign.campaign import Campaign
from anneal.campaign.finetune import Candidate, Outcome
from anneal.campaign.networks import network_of
from anneal.experiments.curves import Row
from anneal.experiments.oracle import Oracle, Split, score
from anneal.experiments.play import NothingLeftError, Player
from anneal.experiments.report import tuned_table
from anneal.experiments.runner import Tell, Trial, run, to_csv, trials_of, untold
from anneal.files import write_text
from anneal.network import encode
from anneal.pairs import Floats, Ids
from anneal.settings import Settings
from anneal.watch import Watch, unwatched

SHARES = (0.5, 1.0)  # of the rounds
COLUMNS = (
    "trial", "bits", "images", "known", "before", "tuned", "served", "adopted",
    "reserved", "reserved_before", "reserved_after", "gain", "gain_low", "gain_high",
)  # fmt: skip
"""Columns of ``finetune.csv``: mAP@5 of the serving model, of the fine-tuned network with the head that was
trained with it, and of what serves in the end; then what the reserved images said."""


def play(
    archive: Archive,
    settings: Settings,
    out: Path,
    *,
    rounds: int,
    trials: int,
    jobs: int,
    watch: Watch = unwatched,
    tell: Tell = untold,
    inner: bool = True,
    begin: Callable[[Sequence[Trial]], None] = lambda trials: None,
) -> list[Row]:
    """Play, fine-tune copies of the campaigns, and write ``finetune.csv``. Some questions are held out, as a
    person has them. A copy that was tuned is not tuned again when the run goes on. It is scored on training
    images, split anew, or if not ``inner`` on test images. ``begin`` is told what is played."""
    rows: list[Row] = []
    settings = replace(settings, strategy="place", heldout=settings.heldout or Settings().heldout)
    for share in SHARES:
        played = math.ceil(share * rounds)
        player = Player(settings, played - 1)
        todo = trials_of(archive, {"place": player}, out, trials, inner=inner)
        begin(todo)
        for trial in todo:
            with suppress(NothingLeftError):  # then the campaign is at its end
                run(archive, [trial], jobs, watch, tell)
            copy = out / "tuned" / f"{trial.number}-{played}"
            if not copy.exists():
                shutil.copytree(trial.folder, copy.with_suffix(".tmp"), dirs_exist_ok=True)
                copy.with_suffix(".tmp").rename(copy)
            split = trial.split(archive)
            with closing(Campaign.open(copy, player.strategy)) as campaign:
                rows.append({"trial": trial.number, **_row(campaign, split, watch)})
            write_text(out / "finetune.csv", to_csv(sorted(rows, key=_place), COLUMNS))
    write_text(out / "report.md", tuned_table(out / "finetune.csv") + "\n")
    return rows


def _place(row: Row) -> tuple[int, int]:
    return int(row["trial"]), int(row["bits"])


def _row(campaign: Campaign, split: Split, watch: Watch) -> Row:
    noted = campaign.store.setting("tuned_row", None)
    if noted is not None:
        return dict(noted)
    oracle = Oracle.of(campaign.archive())
    before = score(campaign.rounds.vectors(), split, oracle.classes)["map5_min"]
    candidate = finetune.train(campaign, watch=watch)
    outcome = finetune.adopt(campaign, candidate, watch=watch)
    tuned = score(_vectors(campaign, split, candidate, outcome), split, oracle.classes)["map5_min"]
    compared = candidate.compared
    row: Row = {
        "bits": campaign.log().given,
        "images": len(campaign.images),
        "known": len(campaign.evidence().closure.relations.members),
        "before": before,
        "tuned": tuned,
        "served": score(campaign.rounds.vectors(), split, oracle.classes)["map5_min"],
        "adopted": int(outcome.adopted),
        "reserved": compared.images,
        "reserved_before": compared.before.value,
        "reserved_after": compared.after.value,
        "gain": compared.gain.value,
        "gain_low": compared.gain.low,
        "gain_high": compared.gain.high,
    }
    campaign.store.set(tuned_row=row)
    return row


def _vectors(campaign: Campaign, split: Split, candidate: Candidate, outcome: Outcome) -> Floats:
    """The images that are scored, by the fine-tuned network and the head that was trained with it."""
    pixels = campaign.archive().pixels
    tuned = candidate.tuned
    if outcome.round is not None:  # all images are encoded
        network = network_of(campaign, number=outcome.round)
        stored = encode.inputs(campaign.archive(), network, "head", views=campaign.settings.views)
        return encode.vectors(tuned.encoder, network, stored, ["head"])["head"]
    images = np.union1d(split.val, split.test)
    vectors = np.zeros((campaign.size, tuned.encoder.shape.out), dtype=np.float32)
    for some in _parts(images):
        found = encode.query(pixels[some], tuned.backbone, "head", tuned.encoder, campaign.settings.views)
        vectors[some] = found
    return vectors


def _parts(images: Ids) -> Iterator[Ids]:
    for i in range(0, len(images), 64):
        yield images[i : i + 64]
