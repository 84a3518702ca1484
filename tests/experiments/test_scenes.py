"""The drawn archive: it is reproducible, has a folder per class, and varies enough to search."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from anneal.experiments.scenes import KINDS, draw_archive


def pixels(kind: str, seed: int, px: int = 48) -> NDArray[np.float64]:
    return np.asarray(KINDS[kind](np.random.default_rng(seed), px), np.float64)


def written(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


def test_archive_is_a_folder_per_kind_of_numbered_jpegs(tmp_path: Path) -> None:
    draw_archive(tmp_path / "new" / "archive", per_kind=2, seed=0, px=32)
    expected = {f"{kind}/{kind}_{index:03d}.jpg" for kind in KINDS for index in range(2)}
    assert set(written(tmp_path / "new" / "archive")) == expected
    for name in expected:
        with Image.open(tmp_path / "new" / "archive" / name) as image:
            assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (32, 32))


def test_there_are_eight_kinds() -> None:
    names = "beach dense_houses fields forest harbour orchard river sparse_houses"
    assert list(KINDS) == names.split()


def test_same_seed_draws_the_same_bytes_at_any_archive_size(tmp_path: Path) -> None:
    draw_archive(tmp_path / "small", per_kind=1, seed=5, px=32)
    draw_archive(tmp_path / "large", per_kind=2, seed=5, px=32)
    small = written(tmp_path / "small")
    large = written(tmp_path / "large")
    assert small == {name: large[name] for name in small}
    assert len(set(large.values())) == 2 * len(KINDS)


def test_another_seed_draws_another_archive(tmp_path: Path) -> None:
    draw_archive(tmp_path / "a", per_kind=1, seed=1, px=32)
    draw_archive(tmp_path / "b", per_kind=1, seed=2, px=32)
    other = written(tmp_path / "b")
    assert all(content != other[name] for name, content in written(tmp_path / "a").items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("px", [32, 65, 128])
def test_every_kind_fills_a_picture_of_the_asked_size(kind: str, px: int) -> None:
    image = KINDS[kind](np.random.default_rng(px), px)
    assert (image.mode, image.size) == ("RGB", (px, px))
    spread = np.asarray(image, np.float64).std(axis=(0, 1))
    assert spread.min() > 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_varies_in_light_and_content(kind: str) -> None:
    drawn = [pixels(kind, seed) for seed in range(8)]
    assert np.std([d.mean() for d in drawn]) > 4
    assert min(np.abs(a - b).mean() for a, b in combinations(drawn, 2)) > 4


def test_kinds_differ_under_the_same_random_numbers() -> None:
    drawn = [pixels(kind, 3) for kind in KINDS]
    assert min(np.abs(a - b).mean() for a, b in combinations(drawn, 2)) > 4
