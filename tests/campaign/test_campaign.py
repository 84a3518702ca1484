"""What an answer, an undo and a correction do, what follows from the answers, and how far a campaign is."""

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score
from tiny import random_space

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import progress
from anneal.campaign.campaign import FILE, Campaign
from anneal.campaign.evidence import label_pairs
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.store import MACHINE, Event, HeldOut, Lease, Purpose, Row, Store
from anneal.errors import ArchiveError, CampaignError, DiskError, UsageError
from anneal.method import steering
from anneal.method.snapshot import Agenda
from anneal.pairs import UNKNOWN, Answers, Pair, Pairs, Verdict
from anneal.settings import Settings
from full_disk import no_file_over

SIMILAR, DISSIMILAR, UNSURE = Verdict
SETTINGS = Settings(px=32, strategy="mgue", recheck=0)
Make = Callable[..., Campaign]
Later = Callable[[Campaign], Campaign]


@pytest.fixture
def archive(drawn: Path, cache: Path) -> Archive:
    return open_archive(drawn, 32, cache)


@pytest.fixture
def closed() -> Iterator[Later]:
    """Closes a campaign when the test is over."""
    with ExitStack() as stack:

        def close_later(campaign: Campaign) -> Campaign:
            stack.callback(campaign.close)
            return campaign

        yield close_later


@pytest.fixture
def make(tmp_path: Path, archive: Archive, closed: Later) -> Make:
    """A campaign on all images, with these settings changed."""

    def make(name: str = "campaign", heldout: tuple[Pair, ...] = (), **changes: Any) -> Campaign:
        draws = [(FROZEN, number, *pair) for number, pair in enumerate(heldout)]
        settings = replace(SETTINGS, **changes)
        images = np.arange(len(archive))
        return closed(Campaign.create(tmp_path / name, archive, settings, images, HeldOut(draws, [])))

    return make


@pytest.fixture
def campaign(make: Make) -> Campaign:
    return make()


def say(campaign: Campaign, *answers: tuple[int, int, int], by: str = "me") -> list[int]:
    return [campaign.answer(a, b, verdict, by) for a, b, verdict in answers]


def end_round(campaign: Campaign) -> None:
    """Finish a round without learning."""
    campaign.rounds.save(Record(campaign.rounds.current, campaign.log().newest, FROZEN))


def standing(campaign: Campaign) -> list[tuple[int, int, int]]:
    return [(row.a, row.b, row.verdict) for row in campaign.log().standing()]


def evidence(campaign: Campaign) -> list[tuple[int, int, int]]:
    answers = campaign.evidence().answers
    return [(a, b, verdict) for (a, b), verdict in zip(answers.pairs, answers.verdicts.tolist(), strict=True)]


def known(campaign: Campaign, *pairs: Pair) -> list[int]:
    return [int(verdict) for verdict in campaign.known().of(Pairs.from_list(pairs))]


def last_row(campaign: Campaign) -> Row:
    return campaign.log().rows[-1]


# -- answer ----------------------------------------------------------------------------------------


def test_an_answer_is_kept_with_its_annotator_round_and_strategy(campaign: Campaign) -> None:
    before = time.time()
    number = campaign.answer(5, 2, SIMILAR, "ann", key="k", asked=1.5, looked=900)
    end_round(campaign)
    campaign.answer(7, 9, UNSURE)
    first, second = campaign.log().rows
    assert (first.id, first.pair, first.verdict, first.annotator) == (number, (2, 5), SIMILAR, "ann")
    assert (first.key, first.asked, first.looked, first.entered) == ("k", 1.5, 900, None)
    assert (first.strategy, first.round, first.purpose) == ("mgue", 0, Purpose.CHOSEN)
    assert before <= first.answered <= time.time()
    assert (second.pair, second.round, second.annotator) == ((7, 9), 1, "me")


@pytest.mark.parametrize(
    ("a", "b", "verdict"), [(0, 120, 1), (-1, 3, 1), (3, 3, 1), (0, 1, 4), (0, 1, -1)]
)  # there are 120 images and three verdicts
def test_what_is_not_a_pair_or_not_a_verdict_is_refused_and_not_kept(
    campaign: Campaign, a: int, b: int, verdict: int
) -> None:
    with pytest.raises(UsageError, match=r"^A (pair is two different images from 0 to 119|verdict is 1)"):
        campaign.answer(a, b, verdict)
    assert campaign.log().rows == []


def test_an_event_that_is_sent_again_is_taken_once(campaign: Campaign) -> None:
    numbers = [campaign.answer(0, 1, SIMILAR, key="a") for _ in range(3)]
    campaign.answer(2, 3, SIMILAR, key="b")
    assert len(set(numbers)) == 1
    for _ in range(3):
        assert campaign.undo(key="c") == (2, 3)
        assert campaign.correct(numbers[0], UNSURE, key="d") == (0, 1)
    assert standing(campaign) == [(0, 1, UNSURE)]
    assert len(campaign.log().rows) == 4


def test_a_second_answer_of_the_same_person_replaces_the_first_and_what_it_implied(
    campaign: Campaign,
) -> None:
    say(campaign, (0, 1, SIMILAR), (1, 2, SIMILAR))
    assert known(campaign, (0, 2)) == [SIMILAR]
    say(campaign, (1, 2, UNSURE))
    assert known(campaign, (0, 2)) == [UNKNOWN]
    assert standing(campaign) == [(0, 1, SIMILAR), (1, 2, UNSURE)]
    assert len(campaign.log().rows) == 3


# -- what an answer is for ---------------------------------------------------------------------------


def test_an_answer_has_the_purpose_for_which_its_pair_was_given_out(campaign: Campaign) -> None:
    given_out = [((0, 1), Purpose.HELD_OUT), ((2, 3), Purpose.AGAIN), ((4, 5), Purpose.CHOSEN)]
    leases = [Lease(pair, "screen", purpose) for pair, purpose in given_out]
    campaign.store.lease(leases, "screen", 60)
    for pair, purpose in given_out:
        campaign.answer(*pair, SIMILAR, "anybody")
        assert last_row(campaign).purpose == purpose


def test_a_heldout_pair_stays_held_out_until_it_is_released(make: Make) -> None:
    campaign = make(heldout=((0, 1), (2, 3)))
    number = campaign.answer(0, 1, SIMILAR)
    campaign.answer(0, 1, DISSIMILAR)  # a second thought
    campaign.correct(number, UNSURE, "bob")
    campaign.again([last_row(campaign).id])
    campaign.answer(0, 1, SIMILAR)
    purposes = [row.purpose for row in campaign.log().rows if row.verdict]
    assert purposes == [Purpose.HELD_OUT] * 4
    assert evidence(campaign) == []
    campaign.store.add([Event(0, 1, SIMILAR, "me", "mgue", 0, Purpose.RELEASED, entered=MACHINE)])
    assert evidence(campaign) == [(0, 1, SIMILAR)]
    campaign.answer(0, 1, DISSIMILAR)
    assert last_row(campaign).purpose == Purpose.CHOSEN


def test_a_pair_that_was_answered_before_it_was_drawn_is_not_held_out(make: Make) -> None:
    campaign = make(heldout=((0, 1),))
    campaign.store.add([Event(0, 1, SIMILAR, "me", "", 0, Purpose.IMPORTED)])
    campaign.answer(0, 1, DISSIMILAR)
    assert last_row(campaign).purpose == Purpose.CHOSEN
    assert evidence(campaign) == [(0, 1, DISSIMILAR)]


def test_a_heldout_answer_implies_and_contradicts_nothing(make: Make) -> None:
    campaign = make(heldout=((0, 2),))
    say(campaign, (0, 2, DISSIMILAR), (0, 1, SIMILAR), (1, 2, SIMILAR))
    assert campaign.contradictions() == []
    assert known(campaign, (0, 2)) == [SIMILAR]
    assert (progress.standing(campaign).heldout, progress.standing(campaign).answers) == (1, 3)
    for _ in range(3):
        campaign.undo()
    assert evidence(campaign) == []


# -- undo ------------------------------------------------------------------------------------------


def test_undo_takes_back_one_act_after_another_and_what_it_implied(campaign: Campaign) -> None:
    say(campaign, (0, 1, SIMILAR), (1, 2, SIMILAR), (3, 4, SIMILAR))
    assert known(campaign, (0, 2)) == [SIMILAR]
    for pair, implied in (((3, 4), SIMILAR), ((1, 2), UNKNOWN), ((0, 1), UNKNOWN)):
        assert campaign.undo() == pair
        assert known(campaign, pair, (0, 2)) == [UNKNOWN, implied]
    assert (standing(campaign), len(campaign.log().rows)) == ([], 6)
    assert campaign.undo() is None
    assert len(campaign.log().rows) == 6
    say(campaign, (3, 4, SIMILAR))
    assert campaign.undo() == (3, 4)
    assert campaign.undo() is None


def test_undo_takes_back_nothing_of_another_person(campaign: Campaign) -> None:
    say(campaign, (0, 1, SIMILAR), by="ann")
    say(campaign, (0, 1, SIMILAR), (2, 3, SIMILAR), by="bob")
    assert campaign.undo("ann") == (0, 1)
    assert campaign.undo("ann") is None
    assert campaign.undo("nobody") is None
    assert standing(campaign) == [(0, 1, SIMILAR), (2, 3, SIMILAR)]


def test_undo_of_a_correction_restores_what_was_said_before_and_what_it_implied(campaign: Campaign) -> None:
    say(campaign, (0, 1, SIMILAR), (1, 2, SIMILAR), (1, 2, DISSIMILAR), (1, 2, UNKNOWN), (1, 2, UNSURE))
    for verdicts in (
        [UNKNOWN, UNSURE],
        [UNKNOWN, UNKNOWN],
        [DISSIMILAR, DISSIMILAR],
        [SIMILAR, SIMILAR],
    ):
        assert known(campaign, (0, 2), (1, 2)) == verdicts
        campaign.undo()
    assert known(campaign, (0, 1), (1, 2)) == [SIMILAR, UNKNOWN]


def test_undo_by_key_takes_back_that_act_and_later_ones_on_its_pair(campaign: Campaign) -> None:
    for number, pair in enumerate(((0, 1), (2, 3), (4, 5), (2, 3))):
        campaign.answer(*pair, SIMILAR, key=f"{number}")
    assert campaign.undo(undoes="1", key="x") == (2, 3)
    assert campaign.undo(undoes="not sent") is None
    assert standing(campaign) == [(0, 1, SIMILAR), (4, 5, SIMILAR)]
    assert campaign.undo(undoes="1", key="y") == (2, 3)  # it is undone already
    assert len(campaign.log().rows) == 6
    assert [campaign.undo() for _ in range(3)] == [(4, 5), (0, 1), None]


def test_undo_of_an_answer_takes_back_what_the_machine_made_of_it(campaign: Campaign) -> None:
    number = campaign.answer(0, 1, SIMILAR)
    campaign.again([number], by=MACHINE)
    assert list(campaign.log().waiting) == [(0, 1)]
    assert campaign.undo() == (0, 1)
    assert (standing(campaign), campaign.log().waiting, campaign.log().acts((0, 1))) == ([], {}, [])


# -- correct, ask again ------------------------------------------------------------------------------


def test_a_correction_by_another_person_keeps_the_annotator_and_says_who_typed_it(
    campaign: Campaign,
) -> None:
    number = campaign.answer(0, 1, SIMILAR, "ann")
    assert campaign.correct(number, DISSIMILAR, "bob") == (0, 1)
    (row,) = campaign.log().standing()
    assert (row.annotator, row.entered, row.verdict) == ("ann", "bob", DISSIMILAR)
    assert campaign.correct(row.id, UNSURE, "ann") == (0, 1)
    assert campaign.log().standing()[0].entered is None
    assert campaign.undo("bob") == (0, 1)
    assert standing(campaign) == [(0, 1, UNSURE)]  # ann's came later
    assert campaign.undo("ann") == (0, 1)
    assert standing(campaign) == [(0, 1, SIMILAR)]


def test_a_correction_belongs_to_the_round_of_the_answer(campaign: Campaign) -> None:
    number = campaign.answer(0, 1, SIMILAR)
    end_round(campaign)
    campaign.correct(number, DISSIMILAR)
    assert last_row(campaign).round == 0


def test_a_correction_of_what_is_not_there_is_refused(campaign: Campaign) -> None:
    number = campaign.answer(0, 1, SIMILAR)
    with pytest.raises(UsageError, match="There is no answer 99: look at the list again"):
        campaign.correct(99, SIMILAR)
    with pytest.raises(UsageError, match="A verdict is 1"):
        campaign.correct(number, 7)
    assert len(campaign.log().rows) == 1


def test_a_correction_to_nothing_withdraws_the_answer(campaign: Campaign) -> None:
    number = campaign.answer(0, 1, SIMILAR)
    campaign.correct(number, UNKNOWN)
    assert (standing(campaign), known(campaign, (0, 1))) == ([], [UNKNOWN])
    campaign.undo()
    assert standing(campaign) == [(0, 1, SIMILAR)]


def test_answers_to_be_asked_again_are_withdrawn_and_wait(campaign: Campaign) -> None:
    numbers = [campaign.answer(0, 1, UNSURE, who) for who in ("ann", "bob")]
    numbers += say(campaign, (2, 3, SIMILAR), (4, 5, SIMILAR))
    end_round(campaign)
    assert campaign.again([*numbers[:3], 99]) == 2  # pairs
    assert list(campaign.log().waiting) == [(0, 1), (2, 3)]
    assert standing(campaign) == [(4, 5, SIMILAR)]
    withdrawn = campaign.log().rows[-3:]
    assert {(row.round, row.purpose, row.verdict) for row in withdrawn} == {(1, Purpose.AGAIN, UNKNOWN)}
    campaign.answer(0, 1, SIMILAR)
    assert last_row(campaign).purpose == Purpose.AGAIN
    assert list(campaign.log().waiting) == [(2, 3)]
    assert campaign.again(numbers) == 1  # only what stands can be withdrawn


# -- what follows ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("closure", "expected"), [("none", [0, 0, 0]), ("single", [1, 0, 0]), ("full", [1, 1, 0])]
)
def test_the_closure_says_what_answers_imply(make: Make, closure: str, expected: list[int]) -> None:
    campaign = make(closure=closure)
    say(campaign, (0, 1, SIMILAR), (1, 2, SIMILAR), (2, 3, SIMILAR))
    assert known(campaign, (0, 2), (0, 3), (8, 9)) == expected


def test_evidence_is_the_answers_then_the_pairs_of_labels(campaign: Campaign) -> None:
    campaign.answer(7, 8, SIMILAR)
    campaign.label([(0, "x"), (1, "x")])
    end_round(campaign)
    campaign.answer(5, 6, UNSURE)
    labelled = [(0, 1, SIMILAR)] * 2  # each is the other's partner
    assert evidence(campaign) == [(7, 8, SIMILAR), (5, 6, UNSURE), *labelled]
    assert campaign.evidence().rounds.tolist() == [0, 1, -1, -1]
    assert [row.pair for row in campaign.evidence().rows] == [(7, 8), (5, 6)]


def test_evidence_is_made_again_when_anybody_says_anything(campaign: Campaign, closed: Later) -> None:
    other = closed(Campaign.open(campaign.folder))
    before = campaign.evidence()
    assert campaign.evidence() is before
    other.answer(0, 1, SIMILAR)
    assert known(campaign, (0, 1)) == [SIMILAR]
    other.undo()
    assert known(campaign, (0, 1)) == [UNKNOWN]
    other.label([(4, "x"), (5, "x")])
    assert known(campaign, (4, 5)) == [SIMILAR]
    other.label([(5, "y")])
    assert known(campaign, (4, 5)) == [DISSIMILAR]


def test_an_answer_that_joins_two_large_groups_is_known_as_such(campaign: Campaign, closed: Later) -> None:
    say(campaign, *((0, i, SIMILAR) for i in range(1, 5)), *((5, i, SIMILAR) for i in range(6, 10)))
    campaign.answer(0, 1, SIMILAR)  # again: joins nothing
    number = campaign.answer(4, 9, SIMILAR)

    def joins(opened: Campaign) -> list[int]:
        return [row.id for row in opened.log().standing() if row.id in opened.growing().large_joins]

    assert joins(campaign) == [number]
    assert joins(closed(Campaign.open(campaign.folder))) == [number]
    campaign.undo()
    assert joins(campaign) == []


def test_a_contradiction_names_the_rows_behind_it(make: Make) -> None:
    campaign = make(heldout=((8, 9),))
    say(campaign, (8, 9, SIMILAR), (5, 6, SIMILAR))  # the held-out one must not shift the others
    people = ("ann", "bob", "carl")
    answers = ((0, 1, SIMILAR), (1, 2, SIMILAR), (0, 2, DISSIMILAR))
    numbers = [campaign.answer(*answer, who) for answer, who in zip(answers, people, strict=True)]
    campaign.answer(0, 3, SIMILAR)
    (rows,) = campaign.contradictions()
    assert [(row.id, row.annotator) for row in rows] == list(zip(numbers, people, strict=True))
    campaign.correct(numbers[2], SIMILAR)
    assert campaign.contradictions() == []


def test_a_contradiction_with_labels_shows_the_answers_in_it(campaign: Campaign) -> None:
    campaign.label([(0, "x"), (1, "x")])
    number = campaign.answer(0, 1, DISSIMILAR)
    assert [[row.id for row in rows] for rows in campaign.contradictions()] == [[number]]


def test_a_round_is_over_when_its_answers_are_in_and_something_is_known(make: Make) -> None:
    campaign = make(per_round=2)
    say(campaign, (0, 1, UNSURE), (2, 3, UNSURE))
    assert not campaign.is_round_over()  # nothing to learn from
    say(campaign, (4, 5, SIMILAR))
    assert campaign.is_round_over()
    campaign.rounds.save(Record(0, campaign.log().newest - 1, 0))  # one came while the machine learnt
    assert campaign.log().news(campaign.rounds.seen) == 1
    assert not campaign.is_round_over()
    say(campaign, (6, 7, SIMILAR))
    assert campaign.is_round_over()
    campaign.undo()
    assert not campaign.is_round_over()


def counted(campaign: Campaign) -> progress.Standing:
    """The counts, from all rows that stand."""
    rows = campaign.log().standing()
    verdicts = [row.verdict for row in rows]
    evidence = campaign.evidence()
    asked = evidence.rounds >= 0
    given = Answers(evidence.answers.pairs[asked], evidence.answers.verdicts[asked])
    known = evidence.closure.relations
    return progress.Standing(
        images=campaign.size,
        answers=len(rows),
        similar=verdicts.count(SIMILAR),
        dissimilar=verdicts.count(DISSIMILAR),
        unsure=verdicts.count(UNSURE),
        heldout=sum(row.purpose == Purpose.HELD_OUT for row in rows),
        labels=len(campaign.store.labels()),
        implied=int(evidence.closure.relations.implied(given)),
        contradictions=len(evidence.closure.contradictions),
        rounds=campaign.rounds.current,
        share=steering.recent_share(evidence.answers, evidence.rounds),
        waiting=len(campaign.log().waiting),
        alone=int((known.sizes[known.group] == 1).sum()),
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_campaign_in_use_says_the_same_as_one_that_was_just_opened(
    campaign: Campaign, closed: Later, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pairs = list(combinations(range(6), 2))
    every = Pairs.from_list(pairs)
    for step in range(60):
        a, b = pairs[rng.integers(len(pairs))]
        who = ("ann", "bob")[rng.integers(2)]
        act = rng.random()
        rows = campaign.log().standing()
        if act < 0.5 or not rows:
            campaign.answer(a, b, Verdict(int(rng.integers(1, 4))), who)
        elif act < 0.7:
            campaign.undo(who)
        elif act < 0.8:
            campaign.correct(rows[rng.integers(len(rows))].id, int(rng.integers(0, 4)), "bob")
        elif act < 0.9:
            campaign.again([rows[rng.integers(len(rows))].id], by=("ann", MACHINE)[rng.integers(2)])
        else:
            campaign.label([(int(rng.integers(6)), "xy"[rng.integers(2)])])
        progress.standing(campaign)
        if step % 20 == 19:
            end_round(campaign)
        if step % 4 == 0:
            fresh = closed(Campaign.open(campaign.folder))
            assert campaign.log().standing() == fresh.log().standing()
            assert list(campaign.log().waiting) == list(fresh.log().waiting)
            assert evidence(campaign) == evidence(fresh)
            assert campaign.contradictions() == fresh.contradictions()
            assert campaign.known().of(every).tolist() == fresh.known().of(every).tolist()
            from_scratch = campaign.evidence().closure
            assert campaign.known().of(every).tolist() == from_scratch.relations.of(every).tolist()
            assert len(campaign.contradictions()) == len(from_scratch.contradictions)
            assert progress.standing(campaign) == progress.standing(fresh) == counted(campaign)
            assert progress.people(campaign) == progress.people(fresh)
            standing = campaign.log().standing()
            people = Counter(row.annotator for row in standing)
            assert {one["annotator"]: one["answers"] for one in progress.people(campaign)} == people
            joins = [row.id for row in standing if row.id in campaign.growing().large_joins]
            assert joins == [
                row.id for row in fresh.log().standing() if row.id in fresh.growing().large_joins
            ]


# -- all or nothing ------------------------------------------------------------------------------------


def test_a_transaction_that_fails_leaves_everything_as_it_was(campaign: Campaign) -> None:
    say(campaign, (0, 1, SIMILAR))
    end_round(campaign)
    rows = list(campaign.log().rows)

    def fail() -> None:
        with campaign.transaction():
            say(campaign, (1, 2, SIMILAR))
            campaign.label([(7, "x"), (8, "x")])
            end_round(campaign)
            assert known(campaign, (0, 2), (7, 8)) == [SIMILAR, SIMILAR]
            assert campaign.rounds.current == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert campaign.log().rows == rows
    assert known(campaign, (0, 2), (7, 8)) == [UNKNOWN, UNKNOWN]
    assert campaign.rounds.current == 1
    say(campaign, (1, 2, DISSIMILAR))  # it gets the number of the row that was rolled back
    campaign.label([(7, "x"), (8, "y")])
    assert standing(campaign) == [(0, 1, SIMILAR), (1, 2, DISSIMILAR)]
    assert known(campaign, (0, 2), (7, 8)) == [DISSIMILAR, DISSIMILAR]


def test_a_full_disk_leaves_the_log_as_it_was(campaign: Campaign) -> None:
    (number,) = say(campaign, (0, 1, SIMILAR))
    written = (campaign.folder / f"{FILE}-wal").stat().st_size
    with no_file_over(written):
        with pytest.raises(DiskError, match="Everything before it is safe"):
            campaign.answer(1, 2, SIMILAR)
        with pytest.raises(DiskError, match="Everything before it is safe"):
            campaign.undo()
        with pytest.raises(DiskError, match="Everything before it is safe"):
            campaign.correct(number, UNSURE)
        with pytest.raises(DiskError, match="Everything before it is safe"):
            campaign.again([number])
        assert standing(campaign) == [(0, 1, SIMILAR)]
        assert campaign.log().waiting == {}
    assert campaign.answer(1, 2, DISSIMILAR) == number + 1  # there is room again
    assert known(campaign, (0, 2)) == [DISSIMILAR]


ANSWER_FOR_EVER = """
import sys
from pathlib import Path
from anneal.campaign.campaign import Campaign
campaign = Campaign.open(Path(sys.argv[1]))
n = len(campaign.log().rows) // 4
print(n, flush=True)
while True:
    a = n % 110
    with campaign.transaction():
        campaign.answer(a, a + 1, 1)
        campaign.answer(a, a + 2, 2)
        campaign.answer(a, a + 2, 3)
        campaign.undo()
    n += 1
    print(n, flush=True)
"""


def test_a_killed_process_leaves_every_finished_step_and_no_half_of_one(
    campaign: Campaign, rng: np.random.Generator
) -> None:
    campaign.close()
    before = 0
    for _ in range(4):
        command = [sys.executable, "-c", ANSWER_FOR_EVER, str(campaign.folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert int(writer.stdout.readline()) == before
            time.sleep(rng.uniform(0.01, 0.05))
            writer.kill()
            done = [int(line) for line in writer.stdout.read().split("\n")[:-1]]  # whole lines only
        with closing(Campaign.open(campaign.folder)) as opened:
            rows = opened.log().rows
            assert len(rows) % 4 == 0
            assert len(rows) // 4 >= max(done, default=before)
            assert {row.verdict for row in opened.log().standing()} <= {SIMILAR, DISSIMILAR}
            assert opened.log().given == 2 * len(rows) // 4
            before = len(rows) // 4
    assert before > 0


# -- labels ----------------------------------------------------------------------------------------

SIZES = {"forest": 9, "river": 5, "beach": 3, "runway": 1}
CLASSES = np.random.default_rng(3).permutation([name for name, size in SIZES.items() for _ in range(size)])
LABELS = {3 * number + 2: str(name) for number, name in enumerate(CLASSES)}


def test_a_labelled_image_gets_four_partners_of_its_class_and_four_of_others() -> None:
    answers = label_pairs(LABELS, np.random.default_rng(0))
    left = list(zip(answers.pairs, answers.verdicts.tolist(), strict=True))
    for name in sorted(SIZES):
        for image in sorted(image for image, own in LABELS.items() if own == name):
            for verdict, available in ((SIMILAR, SIZES[name] - 1), (DISSIMILAR, 18 - SIZES[name])):
                rows = left[: min(4, available)]
                left = left[min(4, available) :]
                partners = {a + b - image for (a, b), _ in rows if image in (a, b)}
                assert len(partners) == min(4, available)  # each has the image, and none comes twice
                assert {given for _, given in rows} <= {verdict}
                assert {LABELS[partner] == name for partner in partners} <= {verdict == SIMILAR}
    assert left == []


def test_partners_depend_on_the_seed_alone(make: Make) -> None:
    def pairs(seed: int, labels: dict[int, str] = LABELS) -> list[Pair]:
        return list(label_pairs(labels, np.random.default_rng(seed)).pairs)

    assert pairs(1) == pairs(1, dict(reversed(LABELS.items())))
    assert pairs(1) != pairs(2)
    first, second, third = (make(name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    for campaign in (first, second, third):
        campaign.label(LABELS.items())
    second.answer(100, 101, SIMILAR)
    assert evidence(second)[1:] == evidence(first)
    assert evidence(third) != evidence(first)


@pytest.mark.parametrize("labels", [{}, {5: "alone"}])
def test_labels_without_a_partner_stand_for_no_pair(labels: dict[int, str]) -> None:
    assert len(label_pairs(labels, np.random.default_rng(0))) == 0


def test_labels_are_kept_with_the_round(campaign: Campaign) -> None:
    campaign.label([(3, "river")])
    campaign.label([(3, "lake"), (4, "lake")], "me", "cal")
    assert campaign.store.labels() == {3: "lake", 4: "lake"}


# -- making, opening, moving -----------------------------------------------------------------------


def test_a_campaign_opens_as_it_was_made(tmp_path: Path, archive: Archive, closed: Later) -> None:
    settings = replace(SETTINGS, depth="last", per_round=7, closure="single", lam=2.5, loss="ntxent", seed=9)
    made = closed(Campaign.create(tmp_path / "new" / "campaign", archive, settings, np.array([3, 5, 8])))
    made.answer(3, 5, SIMILAR)
    opened = closed(Campaign.open(tmp_path / "new" / "campaign"))
    assert (opened.settings, opened.images.tolist(), opened.size) == (settings, [3, 5, 8], 120)
    assert opened.id == made.id != ""
    assert opened.strategy.name == "mgue"
    assert standing(opened) == [(3, 5, SIMILAR)]
    assert opened.archive().paths == archive.paths
    np.testing.assert_array_equal(opened.archive().pixels, archive.pixels)


def test_every_campaign_has_an_id_of_its_own(make: Make) -> None:
    assert make("one").id != make("two").id


def test_a_second_campaign_in_one_folder_is_refused_and_the_first_stays(
    campaign: Campaign, archive: Archive, closed: Later
) -> None:
    campaign.answer(0, 1, SIMILAR)
    with pytest.raises(UsageError, match=r"campaign already holds a campaign: .*--campaign"):
        Campaign.create(campaign.folder, archive, Settings(px=32, seed=5), np.arange(3))
    opened = closed(Campaign.open(campaign.folder))
    assert (opened.settings, len(opened.images), standing(opened)) == (SETTINGS, 120, [(0, 1, SIMILAR)])


def test_where_there_is_no_campaign_init_is_named(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="anneal init"):
        Campaign.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert not Campaign.is_made(tmp_path / "nowhere")


def test_a_campaign_that_was_not_finished_can_be_made_again(
    tmp_path: Path, archive: Archive, closed: Later
) -> None:
    Store(tmp_path / FILE, create=True).close()
    assert not Campaign.is_made(tmp_path)
    with pytest.raises(CampaignError, match="was not finished: run init again"):
        Campaign.open(tmp_path)
    closed(Campaign.create(tmp_path, archive, SETTINGS, np.arange(3)))
    assert Campaign.is_made(tmp_path)
    assert closed(Campaign.open(tmp_path)).settings == SETTINGS


def test_settings_saved_by_a_later_version_are_read_as_far_as_they_are_known(
    campaign: Campaign, closed: Later
) -> None:
    campaign.store.set(settings={**asdict(SETTINGS), "per_round": 5, "not yet invented": True})
    assert closed(Campaign.open(campaign.folder)).settings == replace(SETTINGS, per_round=5)


def with_its_own_images(folder: Path, drawn: Path) -> Campaign:
    """A campaign that keeps its pixels in its own folder, as init makes it."""
    shutil.copytree(drawn / "river", folder / "images" / "river")
    archive = open_archive(folder / "images", 32, folder / "campaign" / "cache")
    return Campaign.create(folder / "campaign", archive, SETTINGS, np.arange(len(archive)))


def test_a_campaign_may_be_moved_and_its_images_deleted(tmp_path: Path, drawn: Path, closed: Later) -> None:
    campaign = with_its_own_images(tmp_path, drawn)
    pixels = campaign.archive().pixels.copy()
    paths = campaign.archive().paths
    campaign.answer(0, 1, SIMILAR)
    campaign.close()
    (tmp_path / "else").mkdir()
    shutil.move(tmp_path / "campaign", tmp_path / "else" / "where")
    (tmp_path / "images" / "river" / "river_003.jpg").unlink()
    moved = closed(Campaign.open(tmp_path / "else" / "where"))
    np.testing.assert_array_equal(moved.archive().pixels, pixels)
    assert moved.archive().paths == paths
    assert moved.archive().missing() == ["river/river_003.jpg"]
    assert standing(moved) == [(0, 1, SIMILAR)]
    shutil.rmtree(tmp_path / "images")
    np.testing.assert_array_equal(moved.archive().pixels, pixels)
    assert moved.archive().missing() == list(paths)


def test_lost_pixels_are_an_archive_error(tmp_path: Path, drawn: Path, closed: Later) -> None:
    campaign = closed(with_its_own_images(tmp_path, drawn))
    shutil.rmtree(tmp_path / "campaign" / "cache")
    with pytest.raises(ArchiveError, match="are gone or incomplete"):
        campaign.archive()


def test_what_people_do_never_loads_torch() -> None:
    script = (
        "import sys, anneal.campaign.campaign, anneal.campaign.questions, anneal.campaign.progress\n"
        "import anneal.campaign.transfer, anneal.campaign.heldout\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "matplotlib", "rasterio"} & set(loaded.split())


# -- how far it is -------------------------------------------------------------------------------------


def test_a_new_campaign_stands_at_nothing(campaign: Campaign) -> None:
    counts = asdict(progress.standing(campaign))
    assert counts == {**dict.fromkeys(counts, 0), "images": 120, "alone": 120, "share": None}


def test_standing_counts_answers_and_what_they_imply(campaign: Campaign) -> None:
    say(campaign, (0, 1, SIMILAR), (1, 2, SIMILAR), (2, 3, DISSIMILAR), (4, 5, SIMILAR), (6, 7, UNSURE))
    expected = progress.Standing(
        images=120,
        answers=5,
        similar=3,
        dissimilar=1,
        unsure=1,
        heldout=0,
        labels=0,
        implied=3,  # 0 and 2 are similar, 3 is dissimilar to 0 and 1
        contradictions=0,
        rounds=0,
        share=None,  # too few to say
        waiting=0,
        alone=115,  # 0 1 2 and 4 5 are groups
    )
    assert progress.standing(campaign) == expected
    campaign.answer(0, 2, DISSIMILAR)  # against 0, 1, 2; what is contradicted implies nothing
    contradicted = replace(expected, answers=6, dissimilar=2, implied=0, contradictions=1, alone=118)
    assert progress.standing(campaign) == contradicted
    campaign.undo()
    assert progress.standing(campaign) == expected
    end_round(campaign)
    assert progress.standing(campaign) == replace(expected, rounds=1)


def test_what_two_people_agree_on_is_known_once(campaign: Campaign) -> None:
    for who in ("ann", "bob"):
        say(campaign, (0, 1, SIMILAR), by=who)
    say(campaign, (1, 2, SIMILAR), by="ann")
    standing = progress.standing(campaign)
    assert (standing.answers, standing.similar, standing.contradictions) == (3, 3, 0)
    assert standing.implied == 1  # 0, 2


def test_a_disagreement_hides_nothing_that_is_implied_elsewhere(campaign: Campaign) -> None:
    say(campaign, (0, 1, SIMILAR), by="ann")
    say(campaign, (0, 1, DISSIMILAR), by="bob")
    say(campaign, (5, 6, SIMILAR), (6, 7, SIMILAR))
    standing = progress.standing(campaign)
    assert (standing.similar, standing.dissimilar, standing.contradictions) == (3, 1, 1)
    assert standing.implied == 1  # 5, 7


def test_pairs_that_labels_stand_for_are_implied(campaign: Campaign) -> None:
    campaign.label([(0, "x"), (1, "x"), (2, "x"), (3, "y"), (4, "y")])
    standing = progress.standing(campaign)
    assert (standing.labels, standing.answers, standing.implied) == (5, 0, 10)


def test_the_share_is_that_of_the_last_fifty_answers_that_are_learnt_from(make: Make) -> None:
    heldout = [(number, 100) for number in range(90, 100)]
    campaign = make(heldout=tuple(heldout), closure="none")
    for number in range(90):
        if number in (9, 10, 40, 70, 89):
            latest = range(max(number - 50, 0), number)
            share = sum(one >= 40 for one in latest) / max(len(latest), 1)
            assert progress.standing(campaign).share == (None if number < 10 else pytest.approx(share))
        campaign.answer(number, 100, SIMILAR if number >= 40 else DISSIMILAR)
    say(campaign, *((*pair, DISSIMILAR) for pair in heldout), (0, 1, UNSURE))
    assert progress.standing(campaign).share == 1.0


def test_only_mgue_aims_at_a_share(make: Make) -> None:
    assert progress.aim(make("mgue", share=0.5)) == (0.3, 0.7)
    assert progress.aim(make("alone", share=0.0)) is None
    assert progress.aim(make("place", strategy="place")) is None


def test_people_are_listed_with_how_much_and_how_fast(campaign: Campaign) -> None:
    for number in range(30):
        verdict = UNSURE if number % 3 == 0 else SIMILAR
        campaign.answer(number, 99, verdict, "bob", looked=60_000 if number < 10 else 3_000)
    campaign.answer(0, 1, SIMILAR, "ann")
    assert progress.people(campaign) == [
        {"annotator": "ann", "answers": 1, "unsure": 0, "per_minute": None},
        {"annotator": "bob", "answers": 30, "unsure": 10, "per_minute": 20.0},  # of the last twenty
    ]


def test_agreement_is_cohens_kappa_on_the_pairs_two_people_share(
    campaign: Campaign, rng: np.random.Generator
) -> None:
    assert progress.agreement(campaign) == []
    said = {who: rng.choice([1, 2, 3], 40, p=[0.6, 0.3, 0.1]).tolist() for who in ("ann", "bob")}
    for who, first, last in (("ann", 0, 30), ("bob", 10, 40)):
        say(campaign, *((number, 100, said[who][number]) for number in range(first, last)), by=who)
    campaign.answer(0, 1, SIMILAR, "carl")
    both = np.array([said["ann"][10:30], said["bob"][10:30]])
    assert progress.agreement(campaign) == [
        {
            "one": "ann",
            "other": "bob",
            "pairs": 20,
            "agreement": pytest.approx((both[0] == both[1]).mean()),
            "kappa": pytest.approx(cohen_kappa_score(*both)),
        }
    ]


def test_shares_are_those_of_each_rounds_answers_that_are_learnt_from(make: Make) -> None:
    campaign = make(heldout=((6, 7),))
    say(campaign, (0, 1, SIMILAR), (2, 3, DISSIMILAR), (4, 5, UNSURE), (6, 7, SIMILAR))
    end_round(campaign)
    say(campaign, (8, 9, SIMILAR))
    assert progress.shares(campaign) == [
        {"round": 0, "answers": 2, "similar": 0.5},
        {"round": 1, "answers": 1, "similar": 1.0},
    ]


def test_what_the_machine_does_is_told_in_numbers_and_in_a_sentence(make: Make) -> None:
    campaign = make(per_round=3)
    files = campaign.rounds.files(FROZEN)
    files.save_space(random_space(n=campaign.size), np.empty((0, 6), dtype=np.int64))
    files.save_agenda(Agenda())
    assert progress.machine(campaign)["state"] == "absent"
    assert progress.machine(campaign)["text"].startswith("The machine is not running.")
    campaign.mailbox.set_machine(state="idle")
    say(campaign, (0, 1, SIMILAR), (2, 3, SIMILAR))
    told = progress.machine(campaign)
    assert (told["state"], told["fresh"], told["needed"]) == ("idle", 2, 3)
    assert told["text"] == "The machine learns after 1 more answer."
    say(campaign, (4, 5, SIMILAR))
    assert progress.machine(campaign)["text"] == "The machine is about to learn from your answers."
    campaign.mailbox.set_machine(state="learning", step="encoding", done=3, total=8)
    told = progress.machine(campaign)
    assert (told["step"], told["done"], told["total"]) == ("encoding", 3, 8)
    assert told["text"] == "The machine is encoding…"
    campaign.mailbox.set_machine(state="failed", error="The disk is full.", again=time.time() + 30)
    assert progress.machine(campaign)["text"].startswith("The machine's last turn failed: The disk is full.")


def test_the_list_of_files_is_read_once(campaign: Campaign) -> None:
    """A new round or a refused answer does not make it be read again: it may have a million lines."""
    archive = campaign.archive()
    campaign.rounds.save(Record(0, 0, FROZEN))
    assert campaign.rounds.current == 1
    with pytest.raises(UsageError):
        campaign.answer(3, 3, Verdict.SIMILAR)
    assert campaign.archive() is archive
    campaign.inventory.note_growth()
    assert campaign.archive() is not archive
