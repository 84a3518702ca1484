"""What tests share: small archives, real data where there is any, no network, one thread, short training."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from anneal.archive.catalog import Archive, open_archive
from anneal.experiments import scenes
from anneal.network.backbones import Backbone

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported anywhere
torch.set_num_threads(1)  # tests run side by side, one a core


settings.register_profile("any machine", deadline=None)  # a slow or busy one too
settings.load_profile("any machine")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of drawn scenes: 8 kinds, 15 images each, 48 px. Read it, never write to it."""
    folder = tmp_path_factory.mktemp("drawn") / "archive"
    scenes.draw_archive(folder, per_kind=15, seed=1, px=48)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests store pixels and features, shared so that nothing is encoded twice."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def small_archive(drawn: Path, cache: Path) -> Archive:
    """The drawn scenes at 32 px."""
    return open_archive(drawn, 32, cache)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real archives; tests that want it are skipped where there is none."""
    folder = os.environ.get("ANNEAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set ANNEAL_DATA to the folder that holds UCMerced and AID150")
    return Path(folder).resolve()


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn takes little time: for tests about rounds, not about what is learnt in one."""
    from anneal.method import steering
    from anneal.network.train import Fit

    def at(depth: str, recipe: str, **settings: Any) -> Fit:
        return Fit(steps=4, anchored_images=8, **settings)

    monkeypatch.setattr(Fit, "at", at)
    monkeypatch.setattr(steering, "SAMPLE", 2000)


@pytest.fixture(scope="session")
def shrunk() -> Backbone:
    """A quick backbone: the image at 4 × 4 pixels. It tells some kinds of scene apart."""
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten())
    return Backbone("shrunk", None, network, (0.0,) * 3, (1.0,) * 3)


class OneProcess:
    """Runs each trial when it is submitted, in this process."""

    def submit(self, work: Callable[..., None], *args: Any) -> Future[None]:
        future: Future[None] = Future()
        try:
            work(*args)
            future.set_result(None)
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **options: bool) -> None:
        """There is nothing to end."""


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are played in this process."""
    from anneal.experiments import runner

    monkeypatch.setattr(runner, "get_reusable_executor", lambda *args, **options: OneProcess())


@pytest.fixture
def quick_trials(
    one_process: None, few_steps: None, shrunk: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials take little time: in this process, with few steps and a quick backbone, whichever is named."""
    from anneal.experiments import runner
    from anneal.network import backbones

    monkeypatch.setattr(backbones, "load", lambda name: shrunk)
    monkeypatch.setattr(backbones, "fetch", lambda name: name)
    monkeypatch.setattr(runner, "_backbone", lambda name: shrunk)
