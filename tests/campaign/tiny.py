"""What the tests of campaigns share: a quick backbone, settings, and campaigns in a made-up space."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import Question, take
from anneal.campaign.rounds import FROZEN, Record, Round
from anneal.campaign.store import Event, HeldOut, Purpose
from anneal.method.neighbours import unit
from anneal.method.snapshot import Agenda
from anneal.network.backbones import Backbone
from anneal.pairs import Floats, Ids, Pair, Pairs, Verdict
from anneal.settings import Settings

SHRUNK = Backbone(
    "shrunk", None, nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten()), (0.0,) * 3, (1.0,) * 3
)  # an image at 4 × 4 pixels


def _convolutions() -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lower = nn.Sequential(nn.Conv2d(3, 8, 8, stride=8), nn.ReLU())  # a cell is one number in each map
        upper = nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return Backbone("convolutions", lower, upper, (0.5,) * 3, (0.5,) * 3)


PLAIN_CONVOLUTIONS = _convolutions()  # has two parts that can be trained
SETTINGS = Settings(
    backbone="random:resnet-18", px=32, views=1, per_round=24, heldout=0.2, recheck=0.0, sheets=0
)


def pattern_archive(folder: Path, kinds: int = 12, each: int = 10) -> Archive:
    """Images of 4 × 4 coloured cells in a new folder. Each kind has its colours, with noise on every cell."""
    rng = np.random.default_rng(0)
    for kind in range(kinds):
        named = folder / "images" / f"kind{kind:02d}"
        named.mkdir(parents=True)
        colours = rng.uniform(60, 195, (4, 4, 3))
        for i in range(each):
            cells = np.clip(colours + 60 * rng.normal(size=(4, 4, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(cells).resize((32, 32), Image.Resampling.NEAREST).save(named / f"{i:02d}.png")
    return open_archive(folder / "images", 32, folder / "cache")


def random_space(seed: int = 3, n: int = 120, dim: int = 4) -> Floats:
    return unit(np.random.default_rng(seed).normal(size=(n, dim)))


def campaign_in(
    folder: Path,
    archive: Archive,
    settings: Settings,
    *,
    listed: Sequence[Pair] = (),
    heldout: Sequence[Pair] = (),
    images: Ids | None = None,
    vectors: Floats | None = None,
) -> Campaign:
    """A campaign whose first round asks what is ``listed``, in a random space or in that of ``vectors``."""
    files = Round.of(folder, FROZEN)
    files.save_space(random_space() if vectors is None else vectors, np.empty((0, 6), dtype=np.int64))
    files.save_agenda(Agenda(Pairs.from_list(listed)))
    draws = [(FROZEN, number, *pair) for number, pair in enumerate(heldout)]
    ids = np.arange(len(archive)) if images is None else images
    return Campaign.create(folder, archive, settings, ids, HeldOut(draws, []))


def end_round(campaign: Campaign, *listed: Pair, vectors: Floats | None = None, **record: Any) -> None:
    """Finish a round without learning; the next one asks what is ``listed``."""
    number = campaign.rounds.current
    files = campaign.rounds.files(number)
    files.save_agenda(Agenda(Pairs.from_list(listed)))
    space = campaign.rounds.vectors() if vectors is None else vectors
    files.save_space(space, np.empty((0, 6), dtype=np.int64))
    campaign.rounds.save(Record(number, campaign.log().newest, **{"serving": number, **record}))


def say(
    campaign: Campaign,
    pairs: Iterable[Pair],
    verdicts: Iterable[int],
    purpose: str = Purpose.CHOSEN,
    annotator: str = "me",
) -> list[int]:
    """Answers to many pairs in one step; their row numbers."""
    name = campaign.strategy.name
    number = campaign.rounds.current
    return campaign.store.add(
        Event(min(pair), max(pair), int(verdict), annotator, name, number, purpose)
        for pair, verdict in zip(pairs, verdicts, strict=True)
    )


def truth(campaign: Campaign) -> list[str]:
    """The kind of each image, by its folder."""
    return [str(label) for label in campaign.archive().labels]


def verdict_of(kinds: Sequence[str], pair: Pair) -> Verdict:
    return Verdict.SIMILAR if kinds[pair[0]] == kinds[pair[1]] else Verdict.DISSIMILAR


def answer_truly(campaign: Campaign, n: int, annotator: str = "me") -> list[Question]:
    """An oracle answers n questions, one at a time; returns them."""
    kinds = truth(campaign)
    asked: list[Question] = []
    for _ in range(n):
        question, *_ = take(campaign, annotator, annotator, 1)  # the first tile of a sheet
        campaign.answer(
            *question.pair,
            verdict_of(kinds, question.pair),
            annotator,
            sheet=question.sheet,
            guess=question.guess,
        )
        asked.append(question)
    return asked
