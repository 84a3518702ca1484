"""What a round leaves behind: its files come back as they were saved, and so does its record."""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anneal.campaign.rounds import FROZEN, Record, Round, Rounds
from anneal.campaign.store import HeldOut, Store
from anneal.errors import CampaignError, DiskError
from anneal.method.neighbours import build_index, unit
from anneal.method.snapshot import Agenda
from anneal.pairs import Floats, Pairs
from full_disk import no_file_over


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "campaign.sqlite", create=True)) as store:
        yield store


@pytest.fixture
def rounds(tmp_path: Path, store: Store) -> Rounds:
    return Rounds(tmp_path, store)


def save_space(files: Round, value: float) -> None:
    files.save_space(np.full((4, 2), value), np.zeros((1, 6), dtype=np.int64))


# -- the files of one round ----------------------------------------------------------------------------


@pytest.mark.parametrize("number", [FROZEN, 0, 12])
def test_the_files_of_a_round_come_back_as_they_were_saved(tmp_path: Path, number: int) -> None:
    files = Round.of(tmp_path, number)
    vectors = np.random.default_rng(0).normal(size=(5, 3))
    nearest = np.arange(12).reshape(2, 6)
    assert (files.has_vectors, files.has_model, files.nearest(), files.agenda()) == (False, False, None, None)
    assert len(files.suspects()) == 0
    files.save_space(vectors, nearest)
    files.save_suspects(Pairs.of([3, 1], [4, 0]))
    assert files.has_vectors
    np.testing.assert_array_equal(files.vectors(), vectors.astype(np.float32))
    np.testing.assert_array_equal(files.nearest(), nearest)
    assert list(files.suspects()) == [(3, 4), (0, 1)]
    files.remove()
    assert not files.has_vectors
    assert not files.folder.exists()
    files.remove()  # a second time does no harm


def test_each_round_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = {Round.of(tmp_path, number).folder for number in range(FROZEN, 20)}
    assert len(folders) == 21
    assert {folder.parent for folder in folders} == {tmp_path / "rounds"}


pairs = st.lists(st.tuples(st.integers(0, 50), st.integers(51, 99)), max_size=8).map(Pairs.from_list)
ids = st.lists(st.integers(0, 99), max_size=8).map(lambda numbers: np.array(numbers, dtype=np.int64))
tables = st.tuples(st.integers(0, 3), st.integers(0, 3)).map(lambda shape: np.ones(shape, dtype=np.int64))
agendas = st.builds(Agenda, pairs, ids, tables, st.floats(0, 5))


@given(agendas)
@settings(max_examples=30, deadline=None)
def test_an_agenda_comes_back_as_it_was_saved(agenda: Agenda) -> None:
    with TemporaryDirectory() as folder:
        files = Round.of(Path(folder), 0)
        files.save_agenda(agenda)
        saved = files.agenda()
    assert saved is not None
    assert list(saved.pairs) == list(agenda.pairs)
    np.testing.assert_array_equal(saved.images, agenda.images)
    np.testing.assert_array_equal(saved.beside, agenda.beside)
    assert saved.beside.shape == agenda.beside.shape
    assert saved.lean == agenda.lean


def test_a_full_disk_keeps_the_files_that_are_there(tmp_path: Path) -> None:
    files = Round.of(tmp_path, 0)
    files.save_agenda(Agenda(Pairs.of([0], [1])))
    files.save_suspects(Pairs.of([0], [1]))
    save_space(files, 0.5)
    many = Pairs.of(np.zeros(5000), np.arange(1, 5001))
    with no_file_over(4096):
        with pytest.raises(DiskError, match="The disk is full"):
            files.save_agenda(Agenda(many))
        with pytest.raises(DiskError, match="The disk is full"):
            files.save_suspects(many)
        with pytest.raises(DiskError, match="The disk is full"):
            files.save_space(np.ones((5000, 2)), np.zeros((1, 6), dtype=np.int64))
    agenda = files.agenda()
    assert agenda is not None
    assert list(agenda.pairs) == list(files.suspects()) == [(0, 1)]
    assert np.unique(files.vectors()).tolist() == [0.5]


def test_vectors_are_filled_in_place_and_appear_when_they_are_complete(tmp_path: Path) -> None:
    files = Round.of(tmp_path, 0)
    with files.new_vectors(5, 3) as rows:
        rows[:2] = 1
        rows[2:] = 2
        assert not files.has_vectors
    assert files.vectors().tolist() == [[1.0] * 3] * 2 + [[2.0] * 3] * 3
    assert files.vectors().dtype == np.float32
    assert [file.name for file in files.folder.iterdir()] == ["vectors.npy"]


def test_an_error_while_vectors_are_filled_keeps_those_that_are_there(tmp_path: Path) -> None:
    files = Round.of(tmp_path, 0)
    save_space(files, 0.5)

    def fail() -> None:
        with files.new_vectors(4, 2) as rows:
            rows[:] = 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    with no_file_over(4096), pytest.raises(DiskError, match="The disk is full"), files.new_vectors(5000, 2):
        raise AssertionError("there is no room for the rows")
    assert np.unique(files.vectors()).tolist() == [0.5]
    assert sorted(file.name for file in files.folder.iterdir()) == ["top.npy", "vectors.npy"]


def large_space(monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> Floats:
    """Vectors of an archive that is large enough for an index."""
    monkeypatch.setattr("anneal.campaign.rounds.EXACT", 500)
    return unit(np.random.default_rng(seed).normal(size=(2000, 8))).astype(np.float32)


def test_a_large_archive_has_an_index_that_comes_back_as_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = large_space(monkeypatch)
    files = Round.of(tmp_path, 0)
    files.save_space(vectors, np.zeros((1, 6), dtype=np.int64))
    assert files.index() is None
    files.index_vectors()
    index = files.index()
    assert index is not None
    assert len(index) == 2000
    expected = build_index(vectors).nearest(vectors, vectors[:20], 5)
    np.testing.assert_array_equal(index.nearest(files.vectors(), vectors[:20], 5).ids, expected.ids)
    save_space(files, 0.5)  # new vectors: the index is not of them
    assert files.index() is None
    files.index_vectors()
    assert files.index() is None, "four images need none"


def test_a_saved_index_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = large_space(monkeypatch)
    files = Round.of(tmp_path, 0)
    files.save_index(build_index(vectors[:1500]))
    index = files.index(to_grow=True)
    assert index is not None
    index.add(vectors[1500:])
    files.save_index(index)
    grown = files.index()
    assert grown is not None
    assert len(grown) == 2000
    assert grown.nearest(vectors, vectors[1500:], 1).ids[:, 0].tolist() == list(range(1500, 2000))


def test_a_full_disk_keeps_the_index_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = large_space(monkeypatch)
    files = Round.of(tmp_path, 0)
    files.save_index(build_index(vectors[:600]))
    with no_file_over(4096), pytest.raises(DiskError, match="The disk is full"):
        files.save_index(build_index(vectors))
    index = files.index()
    assert index is not None
    assert len(index) == 600
    assert [file.name for file in files.folder.iterdir()] == ["index.faiss"]


def test_an_index_that_cannot_be_read_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Round.of(tmp_path, 0)
    files.save_index(build_index(large_space(monkeypatch)))
    file = files.folder / "index.faiss"
    whole = file.read_bytes()
    for data in (whole[:1000], whole[:-100], b"", b"no index at all"):
        file.write_bytes(data)
        assert files.index() is None


def test_lost_vectors_are_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match=r"0002 has lost its vectors: run anneal check"):
        Round.of(tmp_path, 2).vectors()


# -- records -------------------------------------------------------------------------------------------

figures = st.floats(allow_nan=False)
records = st.builds(
    Record,
    number=st.just(0),
    seen=st.integers(0, 2**40),
    serving=st.integers(FROZEN, 9),
    answers=st.integers(0, 2**40),
    bits=figures,
    minutes=figures,
    threshold=figures,
    cutoff=figures,
    loss=figures,
    recheck_rate=figures,
    seconds=st.dictionaries(st.text(max_size=3), figures, max_size=3),
    p5=st.none() | st.tuples(figures, figures, figures),
    curve=st.none() | st.dictionaries(st.text(max_size=3), figures | st.text(max_size=3), max_size=3),
)


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path, store: Store) -> None:
    @given(records)
    @settings(max_examples=30, deadline=None)
    def check(record: Record) -> None:
        Rounds(tmp_path, store).save(record)
        (saved,) = Rounds(tmp_path, store).records()
        assert replace(saved, p5=None) == replace(record, p5=None)
        assert (saved.p5 and tuple(saved.p5)) == record.p5

    check()


def test_figures_that_are_no_numbers_are_kept_and_unknown_ones_are_left_out(store: Store) -> None:
    rounds = Rounds(Path("unused"), store)
    rounds.save(Record(0, 3, 0))
    (record,) = rounds.records()
    assert math.isnan(record.threshold)
    assert math.isnan(record.loss)
    later_version = {**asdict(record), "not yet invented": 1}
    store.save_round(later_version)
    assert rounds.records()[0].seen == 3


# -- the rounds of a campaign --------------------------------------------------------------------------


def test_before_the_first_round_the_frozen_features_serve(rounds: Rounds) -> None:
    assert (rounds.records(), rounds.current, rounds.seen, rounds.serving) == ([], 0, 0, FROZEN)
    assert len(rounds.agenda().pairs) == 0
    with pytest.raises(CampaignError, match="frozen has lost its vectors"):
        rounds.vectors()
    save_space(rounds.files(FROZEN), 0.5)
    assert np.unique(rounds.vectors()).tolist() == [0.5]


def test_the_newest_record_says_what_serves_and_what_was_seen(rounds: Rounds) -> None:
    for number in range(FROZEN, 3):
        save_space(rounds.files(number), number)
    for number, serving in enumerate((0, 1, 1)):  # the third model is worse than the second
        rounds.save(Record(number, 10 * number + 5, serving))
        assert (rounds.current, rounds.seen, rounds.serving) == (number + 1, 10 * number + 5, serving)
        assert np.unique(rounds.vectors()).tolist() == [serving]
    assert np.unique(rounds.vectors(2)).tolist() == [2]
    assert np.unique(rounds.vectors(FROZEN)).tolist() == [FROZEN]


def test_the_index_is_that_of_the_vectors_asked_for(rounds: Rounds, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rounds.index() is None
    for number in (0, 1):
        rounds.files(number).save_index(build_index(large_space(monkeypatch)[: 1000 + number]))
        rounds.save(Record(number, 0, 0))
    assert [len(index) for model in (None, 1, 0) if (index := rounds.index(model))] == [1000, 1001, 1000]


def test_the_agenda_is_the_one_that_the_last_round_planned(rounds: Rounds) -> None:
    rounds.files(FROZEN).save_agenda(Agenda(Pairs.of([0], [1])))
    rounds.files(0).save_agenda(Agenda(Pairs.of([2], [3]), lean=0.5))
    assert list(rounds.agenda().pairs) == [(0, 1)]  # a turn that is not finished does not count
    rounds.save(Record(0, 0, FROZEN))  # whichever model serves
    assert (list(rounds.agenda().pairs), rounds.agenda().lean) == ([(2, 3)], 0.5)
    rounds.save(Record(1, 0, FROZEN))
    assert len(rounds.agenda().pairs) == 0  # it is lost


def test_what_another_process_saves_is_seen(tmp_path: Path, rounds: Rounds, store: Store) -> None:
    with closing(Store(store.path)) as its_store:
        other = Rounds(tmp_path, its_store)
        assert rounds.current == other.current == 0
        other.save(Record(0, 7, 0), HeldOut([(0, 0, 1, 2)], []))
        assert (rounds.current, rounds.seen, rounds.heldout_draws()) == (1, 7, [(0, 0, 1, 2)])
        other.save(Record(0, 7, 0, p5=(0.5, 0.4, 0.6)))  # the same round, a new record
        p5 = rounds.records()[0].p5
        assert p5 is not None
        assert tuple(p5) == (0.5, 0.4, 0.6)


def test_a_round_that_is_rolled_back_is_not_seen(rounds: Rounds, store: Store) -> None:
    def fail() -> None:
        with store.transaction():
            rounds.save(Record(0, 7, 0), HeldOut([(0, 0, 1, 2)], []))
            assert rounds.current == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (rounds.records(), rounds.current, rounds.heldout_pairs()) == ([], 0, {})


def test_heldout_pairs_are_listed_once_in_the_order_drawn(rounds: Rounds) -> None:
    rounds.save(Record(0, 0, 0), HeldOut([(0, 0, 4, 5), (0, 1, 1, 2), (FROZEN, 0, 1, 2)], []))
    assert rounds.heldout_draws() == [(FROZEN, 0, 1, 2), (0, 0, 4, 5), (0, 1, 1, 2)]
    assert list(rounds.heldout_pairs()) == [(1, 2), (4, 5)]


def test_the_last_rounds_the_serving_one_and_those_to_keep_are_needed(rounds: Rounds) -> None:
    for number in range(9):
        save_space(rounds.files(number), number)
        rounds.save(Record(number, 0, min(number, 2)))
    assert [record.number for record in rounds.unneeded({4, FROZEN})] == [0, 1, 3, 5]
    rounds.files(3).remove()
    assert [record.number for record in rounds.unneeded({4})] == [0, 1, 5]  # nothing is there to remove
    assert [record.number for record in rounds.unneeded(range(9))] == []
