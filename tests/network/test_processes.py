"""Training on two processes: the loss curve and the network are those of one process."""

from __future__ import annotations

import os
import socket
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from anneal.errors import UsageError
from anneal.method.relations import Relations, full
from anneal.network import backbones, processes
from anneal.network import train as training
from anneal.network.backbones import Backbone
from anneal.network.model import Depth
from anneal.network.train import Fit, Fitted, assist, fit
from anneal.pairs import Pairs
from blobs import PLAIN, answered, blobs, some_known

DEPTHS: tuple[Depth, ...] = ("last", "head")


def task(depth: Depth) -> tuple[Backbone, NDArray[Any], Relations, Fit]:
    """Feature maps for depth last, features for depth head, and answers about them. Batches are uneven."""
    rng = np.random.default_rng(0)
    if depth == "head":
        features, classes = blobs(rng)
        return PLAIN, features, some_known(classes, rng), Fit(steps=4, batch=31, anchored_images=8, noise=0.0)
    classes = np.repeat(np.arange(3), 5)
    maps = rng.normal(size=(15, 256, 2, 2)) + classes[:, None, None, None]
    known = full(15, answered(classes, Pairs.of(np.arange(14), np.arange(1, 15)))).relations
    backbone = backbones.load("random:resnet-18")
    return backbone, maps.astype(np.float16), known, Fit.at("last", steps=4, batch=9)


def train(depth: Depth) -> Fitted:
    backbone, stored, known, settings = task(depth)
    return fit(backbone, depth, stored, known, settings, np.random.default_rng(2), pair_classifier=True)


def in_full(device: torch.device, depth: str) -> bool:
    return False


def one_of_two(rank: int, port: int, out: Path) -> None:
    """One of two processes, with the environment that a launcher gives it."""
    torch.set_num_threads(1)
    pytest.MonkeyPatch().setattr(
        training, "trains_in_half", in_full
    )  # half precision rounds more than two processes may differ
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()}, MASTER_ADDR="127.0.0.1")
    for depth in DEPTHS:
        if rank:
            backbone, stored, *_ = task(depth)
            assist(backbone, depth, stored)
        else:
            fitted = train(depth)
            torch.save((fitted.losses, fitted.encoder.state_dict()), out / depth)
    assert processes.count() == 2
    torch.distributed.destroy_process_group()


def test_two_processes_learn_what_one_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "trains_in_half", in_full)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn = get_context("spawn")
    started = [spawn.Process(target=one_of_two, args=(rank, port, tmp_path)) for rank in (0, 1)]
    for process in started:
        process.start()
    for process in started:
        process.join(100)
    assert [process.exitcode for process in started] == [0, 0]
    for depth in DEPTHS:
        alone = train(depth)
        losses, weights = torch.load(tmp_path / depth)
        np.testing.assert_allclose(losses, alone.losses, rtol=1e-4)
        for name, weight in alone.encoder.state_dict().items():
            torch.testing.assert_close(weights[name], weight, rtol=1e-3, atol=2e-3, msg=name)


def test_a_process_alone_has_the_whole_batch() -> None:
    rows = torch.eye(3)
    assert (processes.count(), processes.rank()) == (1, 0)
    assert processes.share(np.arange(5)).tolist() == [0, 1, 2, 3, 4]
    assert processes.gather(rows) is rows
    assert processes.from_main("x") == "x"


@pytest.mark.parametrize(("rank", "of", "helps"), [("0", "2", False), ("1", "2", True), ("0", "1", False)])
def test_all_processes_but_the_first_are_helpers(
    monkeypatch: pytest.MonkeyPatch, rank: str, of: str, helps: bool
) -> None:
    for name, value in zip(processes.LAUNCHED, (rank, of, "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert processes.is_helper() == helps
    monkeypatch.delenv("WORLD_SIZE")
    assert not processes.is_helper()


def test_without_accelerate_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    for name, value in zip(processes.LAUNCHED, ("0", "2", "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"anneal\[cluster\]"):
        processes.join(torch.device("cpu"))
