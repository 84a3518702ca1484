"""Sheets: which pairs are on them, what is guessed, when they pay, and how large they are."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anneal.method import placing, sheets
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.method.snapshot import Agenda, Snapshot
from anneal.pairs import Answers, Floats, Pair, Pairs, Verdict
from anneal.settings import LEAST_TILES, MOST_TILES

SIMILAR, DISSIMILAR, UNSURE = Verdict
EACH = 30


def kinds(count: int = 3, noise: float = 0.4) -> Floats:
    """EACH images around each of some centres."""
    rng = np.random.default_rng(1)
    centres = np.repeat(unit(rng.normal(size=(count, 16))), EACH, axis=0)
    return unit(centres + noise * rng.normal(size=centres.shape) / 4)


def shown(vectors: Floats, *answers: tuple[int, int, int], pending: tuple[Pair, ...] = ()) -> Snapshot:
    said = Answers.of(Pairs.from_list((a, b) for a, b, _ in answers), [verdict for *_, verdict in answers])
    known = full(len(vectors), said).relations
    return Snapshot(vectors, np.arange(len(vectors)), known, said, pending=Pairs.from_list(pending))


THREE_GROUPS = [
    *[(kind * EACH, kind * EACH + i, SIMILAR) for kind in range(3) for i in (1, 2, 3)],
    (0, EACH, DISSIMILAR),
    (0, 2 * EACH, DISSIMILAR),
    (EACH, 2 * EACH, DISSIMILAR),
]


def agenda_of(snapshot: Snapshot) -> Agenda:
    return placing.plan(snapshot, 20, np.random.default_rng(0))


def group_sheet(snapshot: Snapshot, agenda: Agenda, n: int) -> Pairs:
    """The next sheet of a group, when nearly all answers were similar; every guess on it is similar."""
    pairs = placing._of_group(snapshot, agenda, n)
    similar = Answers.of(Pairs.from_list([(0, 1)] * 40), [SIMILAR] * 40)
    sheet = placing.sheet(replace(snapshot, answers=similar), agenda, n, np.random.default_rng(0))
    if len(pairs):
        assert list(sheet.pairs) == list(pairs)
        assert set(sheet.guesses.tolist()) == {SIMILAR}
    return pairs


def tiles_of(pairs: Pairs, prototype: int) -> set[int]:
    return {b if a == prototype else a for a, b in pairs}


def test_a_group_s_sheet_has_images_of_its_kind_beside_its_most_typical_member() -> None:
    snapshot = shown(kinds(), *THREE_GROUPS)
    agenda = agenda_of(snapshot)
    assert len(agenda.sheets) == 3
    for prototype, *row in agenda.sheets.tolist():
        tiles = [tile for tile in row if tile >= 0]
        kind = prototype // EACH
        members = np.arange(4) + kind * EACH
        mean = snapshot.vectors[members].mean(axis=0)
        assert prototype == members[np.argmax(snapshot.vectors[members] @ mean)]
        assert LEAST_TILES <= len(tiles) <= MOST_TILES
        assert {tile // EACH for tile in tiles} == {kind}
        assert not set(tiles) & set(members.tolist())


def test_without_groups_or_without_sheets_there_is_none() -> None:
    assert not len(agenda_of(shown(kinds())).sheets)
    plain = placing.plan(shown(kinds(), *THREE_GROUPS), 20, np.random.default_rng(0), with_sheets=False)
    assert not len(plain.sheets)


def test_the_next_sheet_has_what_is_open_of_the_first_that_has_enough() -> None:
    before = shown(kinds(), *THREE_GROUPS)
    agenda = agenda_of(before)
    prototype, *tiles = (tile for tile in agenda.sheets[0].tolist() if tile >= 0)
    pairs = group_sheet(before, agenda, 8)
    assert tiles_of(pairs, prototype) == set(tiles[:8])
    placed, refused, asked, *others = tiles
    other = (prototype // EACH + 1) % 3 * EACH
    third = (prototype // EACH + 2) % 3 * EACH
    after = shown(
        kinds(),
        *THREE_GROUPS,
        (prototype, placed, SIMILAR),
        (refused, other, DISSIMILAR),
        (refused, third, DISSIMILAR),
        pending=((min(prototype, asked), max(prototype, asked)),),
    )
    assert tiles_of(group_sheet(after, agenda, 8), prototype) == set(others[:8])
    used_up = shown(
        kinds(), *THREE_GROUPS, *[(prototype, tile, SIMILAR) for tile in tiles[LEAST_TILES - 1 :]]
    )
    second = agenda.sheets[1]
    assert tiles_of(group_sheet(used_up, agenda, 20), int(second[0])) == {
        t for t in second[1:].tolist() if t >= 0
    }


def test_two_groups_that_may_be_one_are_joined_on_a_sheet() -> None:
    """The first kind is two groups; the answer on the sheet joins them."""
    two = [(0, 1, SIMILAR), (0, 2, SIMILAR), (5, 6, SIMILAR), (5, 7, SIMILAR)]
    snapshot = shown(kinds(), *two, *THREE_GROUPS[3:9], (EACH, 2 * EACH, DISSIMILAR))
    agenda = agenda_of(snapshot)
    joins = [pair for pair in agenda.pairs if {image // EACH for image in pair} == {0}]
    (join,) = joins
    assert sheets.has(agenda.sheets, snapshot.known, Pairs.from_list([join])).all()
    hosts = [row for row in agenda.sheets.tolist() if row[0] < EACH]
    groups = [{0, 1, 2}, {5, 6, 7}]
    assert any(
        row[0] in one and set(row[1:]) & other for row in hosts for one, other in (groups, groups[::-1])
    )


def test_a_join_that_is_on_no_sheet_is_asked_before_any_sheet() -> None:
    snapshot = shown(kinds(), *THREE_GROUPS[:9])
    agenda = agenda_of(snapshot)
    alone = Agenda(Pairs.from_list([(0, EACH)]), agenda.images, sheets=agenda.sheets[:1])
    assert agenda.sheets[0, 0] // EACH in (0, 1, 2)
    assert len(group_sheet(snapshot, alone, 10)) == 0
    answered = shown(kinds(), *THREE_GROUPS)
    assert len(group_sheet(answered, alone, 8)) == 8


def after(said: Sequence[int]) -> Snapshot:
    """When these were the latest verdicts."""
    answers = Answers.of(Pairs.from_list([(0, 1)] * len(said)), said)
    return replace(shown(kinds(), *THREE_GROUPS), answers=answers)


@given(
    st.lists(st.sampled_from([int(SIMILAR), int(DISSIMILAR), int(UNSURE)]), max_size=40),
    st.integers(1, 60),
)
def test_a_sheet_fits_the_round_and_leaves_no_rest_too_small_for_another(said: list[int], most: int) -> None:
    of_group = sheets.group_size(after(said), most)
    assert of_group == 0 or LEAST_TILES <= of_group <= most
    if of_group and most <= MOST_TILES:
        assert most - of_group == 0 or most - of_group >= LEAST_TILES
    of_pairs = sheets.pairs_size(after(said), most)
    assert of_pairs == 0 or LEAST_TILES <= of_pairs <= min(most, sheets.PAIRS)


def test_a_group_s_sheet_comes_when_nearly_all_answers_are_similar(monkeypatch: pytest.MonkeyPatch) -> None:
    def sizes() -> list[int]:
        said = [[SIMILAR] * (40 - n) + [DISSIMILAR] * n for n in (0, 2, 3, 8, 14, 15)]
        return [sheets.group_size(after(some), 20) for some in said]

    assert sizes() == [20, 20, 0, 0, 0, 0]
    assert sheets.group_size(after([]), 20) == 0  # nothing is known yet
    monkeypatch.setattr(sheets, "MANY", 0.35)
    assert sizes() == [20, 20, 20, 8, 4, 0]  # with more exceptions it is smaller


def test_a_sheet_of_pairs_has_what_would_be_asked_one_by_one() -> None:
    snapshot = after([DISSIMILAR] * 20 + [SIMILAR] * 20)
    agenda = agenda_of(shown(kinds(), *THREE_GROUPS))
    sheet = placing.sheet(snapshot, agenda, 20, np.random.default_rng(0))
    pairs = placing.pick(snapshot, agenda, sheets.PAIRS, np.random.default_rng(0))
    assert list(sheet.pairs) == list(pairs)
    assert len(sheet) == sheets.PAIRS


def test_sheets_of_pairs_grow_with_the_first_answers() -> None:
    sizes = [sheets.pairs_size(after([SIMILAR] * n), 20) for n in (0, 3, 4, 7, 40, 200)]
    assert sizes == [0, 0, 4, 7, 10, 10]
    assert sheets.pairs_size(after([SIMILAR] * 40), 3) == 0
    assert [sheets.pairs_size(after([SIMILAR] * 40), n) for n in (4, 7, 10, 11, 13)] == [4, 7, 10, 6, 7]


def test_two_pairs_of_the_same_two_groups_are_not_on_one_sheet() -> None:
    snapshot = shown(kinds(), *THREE_GROUPS[:9])
    pairs = Pairs.from_list([(0, EACH), (1, EACH + 1), (0, 10), (1, 10), (0, 11), (0, 12), (12, EACH)])
    assert list(sheets.of_pairs(snapshot, pairs).pairs) == [(0, EACH), (0, 10), (0, 11), (0, 12), (12, EACH)]
    assert len(sheets.of_pairs(snapshot, pairs[:4])) == 0  # two are too few


def test_the_guess_goes_by_similarity_and_by_the_latest_answers() -> None:
    angles = np.arccos([0.2, 0.5, 0.6, 0.9])
    vectors = np.array([[1.0, 0.0], *[[np.cos(angle), np.sin(angle)] for angle in angles]])
    pairs = Pairs.from_list((0, other) for other in range(1, 5))

    def guessed(said: Sequence[int]) -> list[int]:
        snapshot = replace(shown(vectors), answers=Answers.of(Pairs.from_list([(0, 1)] * len(said)), said))
        return [int(guess) for guess in sheets.guesses(snapshot, pairs)]

    assert guessed([]) == [DISSIMILAR, DISSIMILAR, SIMILAR, SIMILAR]
    assert guessed([SIMILAR] * 20 + [DISSIMILAR] * 20) == guessed([])
    assert guessed([SIMILAR] * 40) == [SIMILAR] * 4
    assert guessed([DISSIMILAR] * 30 + [SIMILAR] * 10) == [DISSIMILAR] * 3 + [SIMILAR]
    assert guessed([DISSIMILAR] * 99 + [SIMILAR] * 40) == [SIMILAR] * 4  # the latest 40 count
