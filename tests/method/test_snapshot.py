"""The two values that a strategy reads and returns."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from anneal.method.relations import none
from anneal.method.snapshot import Agenda, Snapshot
from anneal.pairs import Answers


def snapshot(n: int = 4) -> Snapshot:
    return Snapshot(np.eye(n), np.arange(n), none(n, Answers.none()).relations)


def test_relations_of_other_images_are_refused() -> None:
    with pytest.raises(ValueError, match="3 vectors but relations of 4"):
        replace(snapshot(), vectors=np.eye(3))


def test_a_new_snapshot_has_no_answers_and_nothing_pending() -> None:
    fresh = snapshot()
    assert len(fresh.answers) == len(fresh.rounds) == len(fresh.pending) == 0
    assert fresh.rounds.dtype == np.int64
    optional = [fresh.frozen, fresh.membership, fresh.probability, fresh.agenda]
    assert optional == [None] * 4


def test_an_empty_agenda_can_be_indexed_like_a_full_one() -> None:
    agenda = Agenda()
    assert list(agenda.pairs) == []
    assert agenda.images.dtype == agenda.beside.dtype == np.int64
    assert agenda.images.shape == (0,)
    assert agenda.beside.ndim == 2
    assert agenda.lean == 0


def test_neither_can_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        snapshot().images = np.arange(2)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Agenda().lean = 1.0  # type: ignore[misc]
