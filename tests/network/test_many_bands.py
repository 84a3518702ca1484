"""Networks for images of more than three bands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from anneal.archive.catalog import Archive, open_archive
from anneal.archive.reading import Reading
from anneal.errors import UsageError
from anneal.experiments import scenes
from anneal.method.neighbours import nearest, unit
from anneal.network import backbones, encode, onnx
from anneal.network.backbones import Backbone, for_bands

KERNELS = (2, 2, 1, 0, 0)


@pytest.fixture(scope="module")
def lite0() -> Backbone:
    return backbones.load(backbones.DEFAULT, "cpu")


def grey(bands: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    one = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 1), dtype=np.uint8)
    return np.repeat(one, bands, axis=3)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        (backbones.DEFAULT, (0, 1, 2, 0)),
        (backbones.DEFAULT, (2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0)),
        ("random:resnet-18", KERNELS),
    ],
)
def test_equal_bands_give_what_the_grey_image_gives(name: str, kernels: tuple[int, ...]) -> None:
    backbone = backbones.load(name, "cpu")
    adapted = for_bands(backbone, kernels)
    expected = encode.query(grey(3), backbone, "head", None)
    np.testing.assert_allclose(encode.query(grey(len(kernels)), adapted, "head", None), expected, atol=2e-5)
    assert adapted.digest != backbone.digest
    assert for_bands(adapted, kernels) is adapted
    assert for_bands(backbone, (0, 1, 2)) is backbone


def test_every_band_counts_and_has_the_scale_of_its_colour(lite0: Backbone) -> None:
    adapted = for_bands(lite0, KERNELS)
    assert adapted.mean == tuple(lite0.mean[i] for i in KERNELS)
    image = grey(5)
    before = encode.query(image, adapted, "head", None)
    for band in range(5):
        changed = image.copy()
        changed[..., band] = 255 - changed[..., band]
        assert np.abs(encode.query(changed, adapted, "head", None) - before).max() > 0.01, band


def test_the_export_takes_all_bands() -> None:
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    small = Backbone("small", None, torch.nn.Sequential(*layers), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    adapted = for_bands(small, KERNELS)
    images = np.random.default_rng(1).integers(0, 256, (2, 32, 32, 5), dtype=np.uint8)
    session = onnx.Session(onnx.export(adapted, "head", images[:1]))
    expected = encode.query(images, adapted, "head", None)
    np.testing.assert_allclose(unit(session(images, 2)), expected, atol=1e-4)


def test_a_network_without_a_convolution_for_colours_is_refused(shrunk: Backbone) -> None:
    with pytest.raises(UsageError, match="shrunk does not begin with a convolution: use --bands pca"):
        for_bands(shrunk, KERNELS)


def same_kind(archive: Archive, backbone: Backbone) -> float:
    """The share of images whose nearest neighbour is of their kind."""
    pixels = np.asarray(archive.pixels)
    vectors = encode.query(pixels, for_bands(backbone, archive.reading.kernels), "head", None)
    ids = np.arange(len(archive))
    found = nearest(vectors, ids, vectors, 2).ids[:, 1]
    return float((archive.classes[found] == archive.classes).mean())


def test_kinds_that_differ_in_the_infrared_only_need_all_bands(lite0: Backbone, tmp_path: Path) -> None:
    scenes.draw_infrared(tmp_path / "in", per_kind=8, seed=3, px=64)
    share = {}
    for bands in ("rgb", "all", "pca"):
        archive = open_archive(tmp_path / "in", 64, tmp_path / bands, reading=Reading(bands=bands))
        share[bands] = same_kind(archive, lite0)
    assert share["rgb"] < 0.2, share
    assert share["all"] > 0.35, share
    assert share["pca"] > 0.35, share
