"""Images that show the same picture."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from anneal.method import duplicates
from anneal.method.duplicates import correlations, near, represented
from anneal.method.neighbours import unit
from anneal.pairs import Pair

RNG = np.random.default_rng(0)
SCENES = np.stack(
    [
        np.asarray(Image.fromarray(cells).resize((48, 48), Image.Resampling.BICUBIC))
        for cells in RNG.integers(0, 255, (40, 6, 6, 3), dtype=np.uint8)
    ]
)


def saved_again(pixels: np.ndarray, quality: int) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def test_copies_correlate_and_other_images_do_not() -> None:
    copies = np.stack([saved_again(scene, 50) for scene in SCENES])
    bright = np.clip(SCENES * 1.03, 0, 255).astype(np.uint8)
    assert correlations(SCENES, copies).min() > 0.97
    assert correlations(SCENES, bright).min() > 0.97
    assert correlations(SCENES, np.roll(SCENES, 1, axis=0)).max() < 0.5
    one = SCENES[0].astype(float)
    other = SCENES[1].astype(float)
    cells = [scene.reshape(16, 3, 16, 3, 3).mean(axis=(1, 3)) for scene in (one, other)]
    a, b = (cell - cell.mean(axis=(0, 1)) for cell in cells)
    expected = (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
    assert correlations(SCENES[:1], SCENES[1:2])[0] == pytest.approx(expected, abs=1e-5)


def test_plain_areas_are_the_same_if_their_colour_is() -> None:
    green, blue = (np.full((1, 48, 48, 3), colour, dtype=np.uint8) for colour in ((9, 90, 9), (9, 9, 90)))
    assert correlations(green, green + 1)[0] == 1
    assert correlations(green, blue)[0] == 0
    assert correlations(green, SCENES[:1])[0] == 0
    # Two fields of one colour differ where their furrows differ.
    noise = RNG.integers(-20, 20, (2, 48, 48, 1))
    fields = (green + noise).astype(np.uint8)
    assert correlations(fields[:1], fields[1:])[0] < 0.5


@pytest.mark.parametrize("exact", [10**6, 10])
def test_near_duplicates_are_found_among_new_and_old_images(
    exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duplicates, "EXACT", exact)
    pixels = np.concatenate([SCENES, np.stack([saved_again(SCENES[i], 60) for i in (3, 3, 8)])])
    vectors = unit(pixels.reshape(len(pixels), -1).astype(np.float32) - 128)
    everything = np.arange(len(pixels))
    pairs, similarity, correlation = near(vectors, everything, everything, pixels)
    assert set(pairs) == {(3, 40), (3, 41), (40, 41), (8, 42)}
    assert similarity.min() >= duplicates.SIMILARITY
    assert correlation.min() >= duplicates.CORRELATION
    assert set(near(vectors, everything, np.array([42]), pixels)[0]) == {(8, 42)}
    assert set(near(vectors, np.delete(everything, 8), np.array([42]), pixels)[0]) == set()
    twins = np.ones((len(pixels), 2), dtype=np.float32) / np.sqrt(2)  # a network that tells nothing apart
    assert set(near(twins, everything, everything, pixels)[0]) <= {(3, 40), (3, 41), (40, 41), (8, 42)}


@pytest.mark.parametrize(
    ("same", "alike", "gone", "kept", "expected"),
    [
        ([[0, 2, 5]], [], [], [], ({2: 0, 5: 0}, {})),
        ([[0, 2, 5]], [], [0], [], ({5: 2}, {})),
        ([[0, 2]], [], [0, 2], [], ({}, {})),
        ([], [(0, 1), (1, 2)], [], [], ({}, {1: 0})),  # 2 is like 1, but 1 does not stand for it
        ([], [(0, 1), (0, 2), (1, 2)], [], [], ({}, {1: 0, 2: 0})),
        ([], [(0, 1), (1, 2)], [0], [], ({}, {2: 1})),
        ([], [(0, 1)], [], [1], ({}, {})),
        ([[0, 1]], [(1, 2)], [], [1], ({1: 0}, {})),  # the same bytes are the same image
    ],
)
def test_the_smallest_id_stands_for_the_others(
    same: list[list[int]], alike: list[Pair], gone: list[int], kept: list[int], expected: object
) -> None:
    assert represented(same, alike, gone, kept) == expected


ids = st.integers(0, 9)


@given(st.sets(st.tuples(ids, ids).filter(lambda pair: pair[0] < pair[1])), st.sets(ids), st.sets(ids))
def test_who_stands_for_others_is_there_and_stands_for_itself(
    alike: set[Pair], gone: set[int], kept: set[int]
) -> None:
    exact, others = represented([[2, 3], [5, 7, 8]], alike, gone, kept)
    out = exact | others
    assert not out.keys() & gone
    assert not others.keys() & kept
    for image, of in out.items():
        assert of < image
        assert of not in gone
        assert of not in out
