"""A training that was stopped goes on from its file, and ends with the weights it would have had."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from anneal.network import checkpoint
from anneal.network.backbones import Backbone
from anneal.network.train import Fit, Fitted, fit
from anneal.watch import Progress, silent
from blobs import some_known

STEPS = 8


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save after every step."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)


@lru_cache
def backbone() -> Backbone:
    """Two convolutions, each with a batch norm."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU())
        second = nn.Sequential(nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Backbone("small", first, second, (0.5,) * 3, (0.5,) * 3)


def train(file: Path | None, progress: Progress = silent, *, seed: int = 3, steps: int = STEPS) -> Fitted:
    """A training of the whole network, batch norms and BCGUE's classifier too, on 24 images of noise."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, size=(24, 32, 32, 3), dtype=np.uint8)
    known = some_known(np.repeat(np.arange(4), 6), rng, 40)
    settings = replace(Fit.at("full"), steps=steps, batch=12)
    return fit(
        backbone(), "full", pixels, known, settings, np.random.default_rng(seed),
        pair_classifier=True, checkpoint=file, progress=progress,
    )  # fmt: skip


def weights(fitted: Fitted) -> torch.Tensor:
    """Everything that training changes, the statistics of batch norms too."""
    assert fitted.classifier is not None
    state = [*fitted.encoder.state_dict().values(), *fitted.classifier.state_dict().values()]
    return torch.cat([value.flatten().double() for value in state])


class StoppedError(Exception):
    """Stands for whatever stops a process."""


def stop_at(last: int) -> Progress:
    def progress(step: int, of: int) -> None:
        if step == last:
            raise StoppedError

    return progress


def steps_of(file: Path, **other: int) -> list[int]:
    """The steps that a training takes which goes on from the file."""
    steps: list[int] = []
    train(file, lambda step, _: steps.append(step), **other)
    return steps


@pytest.mark.usefixtures("often")
def test_a_stopped_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    file = tmp_path / "training.safetensors"
    whole = train(None)
    for last in (3, 6):
        with pytest.raises(StoppedError):
            train(file, stop_at(last))
    steps: list[int] = []
    resumed = train(file, lambda step, _: steps.append(step))
    assert steps == [7, 8]
    assert resumed.losses == whole.losses
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.usefixtures("often")
def test_a_training_that_has_ended_is_not_trained_again(tmp_path: Path) -> None:
    """The process may be killed after it, while the images are encoded."""
    file = tmp_path / "training.safetensors"
    ended = train(file)
    steps: list[int] = []
    again = train(file, lambda step, _: steps.append(step))
    assert steps == []
    assert again.losses == ended.losses
    assert torch.equal(weights(again), weights(ended))


@pytest.mark.usefixtures("often")
def test_another_training_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "training.safetensors"
    with pytest.raises(StoppedError):
        train(file, stop_at(4))
    assert steps_of(file, seed=4) == list(range(1, 9)), "other images are shown, from other weights"
    with pytest.raises(StoppedError):
        train(file, stop_at(4))
    assert steps_of(file, steps=6) == list(range(1, 7)), "the learning rate falls faster"


@pytest.mark.usefixtures("often")
@pytest.mark.parametrize("content", [b"", b"torn", bytes(8), (1 << 62).to_bytes(8, "little")])
def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "training.safetensors"
    file.write_bytes(content)
    assert steps_of(file) == list(range(1, 9))


def test_what_takes_seconds_is_not_saved(tmp_path: Path) -> None:
    train(tmp_path / "training.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "training.safetensors"
    command = [sys.executable, str(Path(__file__)), str(file)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "5\n":
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    steps: list[int] = []
    resumed = train(file, lambda step, _: steps.append(step))
    assert steps[-1] == STEPS
    assert steps[0] in range(6, STEPS + 1), "at least five steps were saved"
    assert torch.equal(weights(resumed), weights(train(None)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkpoint.EVERY = 0.0
    train(Path(sys.argv[1]), lambda step, _: print(step, flush=True))
