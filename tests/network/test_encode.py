"""Encoding: the frozen part runs once, resumes, and averages over quarter turns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from anneal.archive.catalog import open_archive
from anneal.network import encode
from anneal.network.backbones import Backbone


def test_the_frozen_part_runs_once_and_resumes(drawn: Path, cache: Path, tmp_path: Path) -> None:
    archive = replace(open_archive(drawn, 32, cache), folder=tmp_path)
    calls: list[int] = []

    class Counting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(len(x))
            if sum(calls) > 150:
                raise KeyboardInterrupt
            return x.mean(dim=(2, 3))

    backbone = Backbone("counted", None, Counting(), (0.0,) * 3, (1.0,) * 3)
    with pytest.raises(KeyboardInterrupt):
        encode.inputs(archive, backbone, "head")
    assert calls == [1, 64, 64, 56]  # one image for the shape, two views of a batch, one view of the next
    calls.clear()
    stored = encode.inputs(archive, backbone, "head")
    assert calls == [1, 56, 56]
    calls.clear()
    np.testing.assert_array_equal(encode.inputs(archive, backbone, "head"), stored)
    assert calls == [1]
    expected = np.asarray(archive.pixels, dtype=np.float32).mean(axis=(1, 2)) / 255
    np.testing.assert_allclose(stored, expected, atol=1e-4)


class LeftHalf(torch.nn.Module):
    """Sees only the left half of an image, so a quarter turn changes its output."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :, :, : x.shape[3] // 2].mean(dim=(2, 3))


def test_features_are_the_mean_over_quarter_turns(drawn: Path, cache: Path, tmp_path: Path) -> None:
    archive = replace(open_archive(drawn, 32, cache), folder=tmp_path)
    backbone = Backbone("left", None, LeftHalf(), (0.0,) * 3, (1.0,) * 3)
    images = np.asarray(archive.pixels, dtype=np.float64) / 255
    once = images[:, :, :16].mean(axis=(1, 2))
    turned = np.rot90(images, 1, axes=(1, 2))[:, :, :16].mean(axis=(1, 2))
    assert np.abs(once - turned).max() > 0.1
    np.testing.assert_allclose(encode.inputs(archive, backbone, "head", views=1), once, atol=1e-5)
    both = encode.inputs(archive, backbone, "head", views=2)
    np.testing.assert_allclose(both, (once + turned) / 2, atol=1e-5)
    queries = encode.query(archive.pixels[:3], backbone, "head", None, views=2)
    unit_rows = both[:3] / np.linalg.norm(both[:3], axis=1, keepdims=True)
    np.testing.assert_allclose(queries, unit_rows, atol=1e-5)
