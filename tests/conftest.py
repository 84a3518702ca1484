"""What tests share: small archives, real data where there is any, no network, quiet threads."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from anneal.experiments import scenes

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported anywhere
torch.set_num_threads(1)  # tests run side by side, one a core


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of drawn scenes: 12 kinds, 10 images each, 48 px. Read it, never write to it."""
    folder = tmp_path_factory.mktemp("drawn") / "archive"
    scenes.draw_archive(folder, per_kind=10, seed=1, px=48)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests keep pixels and features, shared so that nothing is encoded twice."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real archives; tests that want it are skipped where there is none."""
    folder = os.environ.get("ANNEAL_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: set ANNEAL_DATA to the folder that holds UCMerced and AID150")
    return Path(folder).resolve()
