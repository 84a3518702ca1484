"""Encoding: the frozen part runs once, resumes, and averages over quarter turns. It runs in ONNX Runtime
where that pays, with the same output as in torch, and on any device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from anneal.archive.catalog import Archive, open_archive
from anneal.network import backbones, encode, onnx
from anneal.network.backbones import Backbone
from anneal.network.model import Depth, Encoder, Shape


def test_the_frozen_part_runs_once_and_resumes(
    drawn: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "SAVED", 64)
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


def test_large_images_go_through_torch_a_few_at_a_time(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            sizes.append(len(x))
            return x.mean(dim=(2, 3))

    backbone = Backbone("sized", None, Sized(), (0.0,) * 3, (1.0,) * 3)
    for px in (112, 224, 600):
        images = np.full((18, px, px, 3), 51, dtype=np.uint8)
        vectors = encode.query(images, backbone, "head", None, views=1)
        np.testing.assert_allclose(vectors, np.full((18, 3), 3**-0.5), rtol=1e-6)
    assert sizes == [8, 8, 2, *[2] * 9, *[1] * 18]


# -- ONNX Runtime -----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", ["head", "last"])
@pytest.mark.parametrize("name", [backbones.DEFAULT, "random:resnet-18"])
def test_onnx_runtime_gives_what_torch_gives(
    name: str, depth: Depth, small_archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = replace(first_images(small_archive, 12), folder=tmp_path)
    backbone = backbones.load(name)
    in_torch = np.array(encode.inputs(replace(archive, folder=tmp_path / "torch"), backbone, depth))
    monkeypatch.setattr(encode, "MANY", 12)
    monkeypatch.setattr(encode, "_in_torch", only_for_the_shape(encode._in_torch))
    in_onnx = encode.inputs(archive, backbone, depth)
    assert in_onnx.dtype == (np.float32 if depth == "head" else np.float16)
    allowed = 1e-4 if depth == "head" else 1e-4 + np.spacing(np.abs(in_torch))  # stored in half precision
    assert (np.abs(in_onnx.astype(np.float32) - in_torch.astype(np.float32)) <= allowed).all()
    assert np.abs(in_torch).max() > 0.1
    assert [file.suffix for file in tmp_path.glob("frozen-*")] == [".onnx"]


def first_images(archive: Archive, n: int) -> Archive:
    columns = {
        name: getattr(archive, name)[:n] for name in ("paths", "labels", "splits", "digests", "pixels")
    }
    return replace(archive, **columns)


def only_for_the_shape(run: Any) -> Any:
    """Torch, but for a single image alone."""

    def checked(backbone: Backbone, depth: Depth, pixels: NDArray[np.uint8], views: int) -> Any:
        assert len(pixels) == 1
        return run(backbone, depth, pixels, views)

    return checked


class Turned(torch.nn.Module):
    """A small network whose output a quarter turn changes."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first = torch.nn.Conv2d(3, 8, 3, stride=2)
            self.second = torch.nn.Conv2d(8, 16, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(torch.relu(self.first(x)))
        return out[..., : x.shape[3] // 8].mean(dim=(2, 3))


@pytest.fixture
def turned() -> Backbone:
    return Backbone("turned", None, Turned().eval(), (0.5,) * 3, (0.2,) * 3)


@pytest.fixture
def exporting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Small archives are encoded in ONNX Runtime too; lists the networks that were exported."""
    names: list[str] = []
    export = onnx.export

    def listed(backbone: Backbone, *args: Any) -> bytes:
        names.append(backbone.name)
        return export(backbone, *args)

    monkeypatch.setattr(onnx, "export", listed)
    monkeypatch.setattr(encode, "MANY", 100)
    return names


def test_an_interrupted_encoding_ends_with_the_same_features_and_one_export(
    small_archive: Archive,
    turned: Backbone,
    tmp_path: Path,
    exporting: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = encode.inputs(replace(small_archive, folder=tmp_path / "at once"), turned, "head")
    assert exporting == ["turned"]
    archive = replace(small_archive, folder=tmp_path / "in parts")
    monkeypatch.setattr(encode, "SAVED", 50)
    done: list[int] = []

    def stop(rows: int, total: int) -> None:
        done.append(rows)
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode.inputs(archive, turned, "head", stop)
    monkeypatch.setattr(encode, "SAVED", 33)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    resumed = encode.inputs(archive, turned, "head", stop)
    assert done == [50, 83, 116, 120]
    assert exporting == ["turned", "turned"]  # one an archive: only 70 images were left after the stop
    np.testing.assert_array_equal(resumed, whole)
    monkeypatch.setattr(onnx, "session", lambda *args, **options: None)
    in_torch = encode.inputs(replace(small_archive, folder=tmp_path / "torch"), turned, "head")
    np.testing.assert_allclose(whole, in_torch, atol=1e-5)
    assert np.abs(in_torch).max() > 0.1


def test_a_few_images_are_not_worth_an_export(
    small_archive: Archive, turned: Backbone, tmp_path: Path, exporting: list[str]
) -> None:
    archive = replace(first_images(small_archive, 99), folder=tmp_path)
    encode.inputs(archive, turned, "head")
    assert exporting == []
    assert list(tmp_path.glob("*.onnx")) == []


@pytest.mark.parametrize("trained", [False, True])
def test_a_query_uses_an_export_that_is_there_and_makes_none(
    trained: bool,
    small_archive: Archive,
    turned: Backbone,
    tmp_path: Path,
    exporting: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = Encoder(turned, "head", 16, Shape(anchored=False)).eval() if trained else None
    images = small_archive.pixels[:2]
    in_torch = encode.query(images, turned, "head", encoder, folder=tmp_path)
    assert exporting == []
    encode.inputs(replace(small_archive, folder=tmp_path), turned, "head")
    monkeypatch.setattr(encode, "_in_torch", lambda *args: pytest.fail("torch was used"))
    in_onnx = encode.query(images, turned, "head", encoder, folder=tmp_path)
    assert exporting == ["turned"]
    np.testing.assert_allclose(in_onnx, in_torch, atol=1e-5)


def test_another_network_of_the_same_name_has_an_export_of_its_own(turned: Backbone, tmp_path: Path) -> None:
    same = Backbone("turned", None, Turned().eval(), turned.mean, turned.std)
    file = onnx.file_of(tmp_path, turned, "head", 32)
    assert onnx.file_of(tmp_path, same, "head", 32) == file
    trained = Turned().eval()
    with torch.no_grad():
        trained.second.weight[3] += 1
    others = (
        replace(turned, upper=trained),
        replace(turned, mean=(0.4, 0.5, 0.5)),
        replace(turned, upper=torch.nn.Sequential(turned.upper, torch.nn.ReLU())),
    )
    files = {file, *(onnx.file_of(tmp_path, other, "head", 32) for other in others)}
    files |= {onnx.file_of(tmp_path, turned, "last", 32), onnx.file_of(tmp_path, turned, "head", 64)}
    assert len(files) == 6


class Branching(torch.nn.Module):
    """Looks at the values: what the exporter cannot follow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean(dim=(2, 3))
        return mean if float(mean.sum()) > 0 else 2 * mean


class Unstable(torch.nn.Module):
    """Gives something else when it is exported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3)) + (1 if torch.compiler.is_compiling() else 0)


@pytest.mark.parametrize(
    ("network", "reason"), [(Branching(), "Error"), (Unstable(), "its output differs from torch's")]
)
def test_a_network_that_cannot_be_exported_runs_in_torch_and_one_line_says_so(
    network: torch.nn.Module,
    reason: str,
    small_archive: Archive,
    tmp_path: Path,
    exporting: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    backbone = Backbone("strange", None, network, (0.0,) * 3, (1.0,) * 3)
    features = encode.inputs(replace(small_archive, folder=tmp_path), backbone, "head")
    np.testing.assert_allclose(features, small_archive.pixels.mean(axis=(1, 2)) / 255, atol=1e-4)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "anneal"]
    assert line.startswith("strange runs in torch, which is slower: it cannot be used in ONNX Runtime (")
    assert reason in line
    assert "\n" not in line
    assert list(tmp_path.glob("*.onnx*")) == []


# -- devices ----------------------------------------------------------------------------------------


def test_on_another_device_every_tensor_is_there_and_no_export_is_made(
    small_archive: Archive,
    turned: Backbone,
    tmp_path: Path,
    exporting: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The device is torch's ``meta``, which computes shapes alone. It refuses a tensor of the CPU as a GPU
    does, and its results cannot be brought back, so that step is replaced."""
    meta = replace(turned, upper=Turned().eval().to("meta"), device=torch.device("meta"))
    brought: list[tuple[str, int]] = []

    def on_cpu(output: torch.Tensor) -> NDArray[np.float32]:
        brought.append((output.device.type, len(output)))
        return np.ones(output.shape, dtype=np.float32)

    monkeypatch.setattr(encode, "_on_cpu", on_cpu)
    monkeypatch.setattr(Backbone, "autocast", lambda self, wanted=True: torch.autocast("cpu", enabled=False))
    features = encode.inputs(replace(small_archive, folder=tmp_path), meta, "head")
    assert brought == [("meta", 1), ("meta", 120)]
    encoder = Encoder(turned, "head", 16, Shape(anchored=False))
    encode.vectors(encoder, meta, features, ["head"])
    assert brought[2:] == [("meta", 120)]
    assert exporting == []


@pytest.mark.parametrize(("device", "half"), [("cpu", False), ("cuda", True), ("mps", True)])
def test_half_precision_is_for_gpus(
    device: str, half: bool, turned: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(torch, "autocast", lambda *args, enabled: asked.append((*args, enabled)))
    there = replace(turned, device=torch.device(device))
    there.autocast()
    there.autocast(False)
    assert asked == [(device, torch.bfloat16, half), (device, torch.bfloat16, False)]
