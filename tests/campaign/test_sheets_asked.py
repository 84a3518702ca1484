"""Sheets in a campaign: handed out as a whole, answered as ordinary answers, undone, counted."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import SETTINGS, SHRUNK, pattern_archive, truth, verdict_of

from anneal.campaign import turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.questions import Askable, Question, arrange, next_question, prototypes, take
from anneal.campaign.store import Purpose
from anneal.campaign.transfer import read_answers, write_answers
from anneal.method import sheets
from anneal.pairs import Pair, Verdict
from anneal.settings import LEAST_TILES

SIMILAR, DISSIMILAR, UNSURE = Verdict
PLACE = replace(SETTINGS, strategy="place", per_round=30, heldout=0.1, sheets=20)
ROUNDS = 3


@pytest.fixture(scope="module", autouse=True)
def early() -> Iterator[None]:
    """Sheets of groups come while many answers are not similar, to see what becomes of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sheets, "MANY", 0.5)
        yield


def give(campaign: Campaign, question: Question, verdict: Verdict, annotator: str = "me") -> None:
    campaign.answer(*question.pair, verdict, annotator, sheet=question.sheet, guess=question.guess)


def play(campaign: Campaign, rounds: int) -> None:
    """An oracle answers one question at a time, and the machine learns."""
    kinds = truth(campaign)
    for _ in range(rounds):
        while question := next_question(campaign):
            give(campaign, question, verdict_of(kinds, question.pair))
        turn.turn(campaign, SHRUNK)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of 6 kinds of 30 images, after some rounds. Copy it."""
    folder = tmp_path_factory.mktemp("sheets")
    archive = pattern_archive(folder, kinds=6, each=30)
    campaign = turn.begin(folder / "c", archive, PLACE, backbone=SHRUNK)
    play(campaign, ROUNDS)
    campaign.close()
    return folder / "c"


@pytest.fixture
def campaign(taught: Path, tmp_path: Path) -> Iterator[Campaign]:
    campaign = Campaign.open(Path(shutil.copytree(taught, tmp_path / "c")))
    yield campaign
    campaign.close()


def to_sheet(campaign: Campaign, of_group: bool = True) -> list[Question]:
    """Answer truly until a sheet of a group comes, or one of pairs; its tiles."""
    kinds = truth(campaign)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sheets, "PAIRS" if of_group else "MANY", 1 if of_group else -1)
        for _ in range(PLACE.per_round):
            questions = take(campaign, "me", "me", 1)
            if questions[0].sheet is not None:
                return questions
            give(campaign, questions[0], verdict_of(kinds, questions[0].pair))
    raise AssertionError("no sheet came")


def tile(*images: int, sheet: str = "s") -> list[Question]:
    return [Question((0, image), Purpose.CHOSEN, sheet, SIMILAR) for image in images]


def test_a_sheet_counts_as_one_question_and_ends_the_list() -> None:
    heldout: list[Pair] = [(20, 21), (22, 23)]
    askable = Askable([], [], [], [], heldout, [Purpose.CHOSEN] * 9)
    sheet = tile(1, 2, 3)
    arranged = arrange(askable, lambda n: [(5, 6)] * n, 3, 0.1, 0.0, lambda: sheet)
    assert arranged == [Question(heldout[0], Purpose.HELD_OUT), *sheet]
    on_screen = replace(askable, mine=sheet, heldout=[])
    assert arrange(on_screen, lambda n: [(5, 6)], 1, 0.1, 0.0, lambda: tile(7, sheet="t")) == sheet
    one_more = arrange(on_screen, lambda n: [(5, 6)], 2, 0.1, 0.0, lambda: tile(7, 8, sheet="t"))
    assert one_more == [*sheet, *tile(7, 8, sheet="t")]


def test_a_held_out_pair_that_is_on_the_sheet_is_asked_there() -> None:
    askable = Askable([], [], [], [], [(0, 1)], [])
    arranged = arrange(askable, lambda n: [], 3, 0.9, 0.0, lambda: tile(1, 2))
    assert arranged == tile(1, 2)


def test_a_sheet_shows_one_group_and_stays_on_the_screen_until_it_is_answered(campaign: Campaign) -> None:
    tiles = to_sheet(campaign)
    (prototype,) = prototypes(tiles).values()
    assert len(tiles) >= LEAST_TILES
    assert len({one.sheet for one in tiles}) == 1
    assert all(prototype in one.pair and one.purpose == Purpose.CHOSEN for one in tiles)
    assert take(campaign, "me", "me", 1) == tiles  # the page was loaded again
    others = {one.pair for one in take(campaign, "you", "you", 3)}
    assert others.isdisjoint(one.pair for one in tiles)


def test_the_tiles_are_ordinary_answers_and_cost_one_act_and_one_for_each_exception(
    campaign: Campaign,
) -> None:
    tiles = to_sheet(campaign)
    log = campaign.log()
    given, presses = log.given, log.effort.presses
    verdicts = [DISSIMILAR, UNSURE, *[SIMILAR] * (len(tiles) - 2)]
    for question, verdict in zip(tiles, verdicts, strict=True):
        give(campaign, question, verdict)
    log = campaign.log()
    assert log.given == given + len(tiles)
    assert log.effort.presses == presses + 3
    rows = log.standing()[-len(tiles) :]
    assert [(row.pair, row.verdict, row.sheet) for row in rows] == [
        (one.pair, verdict, one.sheet) for one, verdict in zip(tiles, verdicts, strict=True)
    ]
    (prototype,) = prototypes(tiles).values()
    joined = [set(one.pair) - {prototype} for one in tiles[2:]]
    known = campaign.known()
    assert all(known.group[image] == known.group[prototype] for one in joined for image in one)


def test_a_sheet_of_pairs_costs_one_act_and_one_for_each_guess_that_is_changed(campaign: Campaign) -> None:
    tiles = to_sheet(campaign, of_group=False)
    assert LEAST_TILES <= len(tiles) <= sheets.PAIRS
    assert all(one.guess in (SIMILAR, DISSIMILAR) for one in tiles)
    assert take(campaign, "me", "me", 1) == tiles  # with their guesses
    presses = campaign.log().effort.presses
    for question in tiles[2:]:
        give(campaign, question, Verdict(question.guess or 0))
    assert campaign.log().effort.presses == presses + 1
    other = {SIMILAR: DISSIMILAR, DISSIMILAR: SIMILAR}
    give(campaign, tiles[0], other[Verdict(tiles[0].guess or 0)])
    give(campaign, tiles[1], UNSURE)
    assert campaign.log().effort.presses == presses + 3
    assert [row.guess for row in campaign.log().rows[-2:]] == [tiles[0].guess, tiles[1].guess]
    campaign.undo()
    assert campaign.log().effort.presses == presses
    standing = {row.pair for row in campaign.log().standing()}
    assert standing.isdisjoint(one.pair for one in tiles)


def test_pairs_of_a_sheet_may_have_one_image_in_common_or_none() -> None:
    pairs = [Question(pair, Purpose.CHOSEN, "t") for pair in ((1, 2), (3, 4))]
    one_left = [Question((5, 6), Purpose.CHOSEN, "u")]
    assert prototypes([*tile(1, 2, 3), *pairs, *one_left]) == {"s": 0, "t": None}
    guessed = [
        replace(one, guess=guess) for one, guess in zip(tile(1, 2), (SIMILAR, DISSIMILAR), strict=True)
    ]
    assert prototypes(guessed) == {"s": None}  # what is marked must be seen as well as what is not


def test_undo_takes_back_the_sheet_or_one_tile(campaign: Campaign) -> None:
    tiles = to_sheet(campaign)
    before = campaign.log().effort.presses
    for number, question in enumerate(tiles):
        campaign.answer(*question.pair, SIMILAR, key=f"tile-{number}", sheet=question.sheet)
    assert campaign.undo(undoes="tile-1") == tiles[1].pair
    standing = {row.pair for row in campaign.log().standing()}
    assert standing & {one.pair for one in tiles} == {one.pair for one in tiles} - {tiles[1].pair}
    assert campaign.log().effort.presses == before + 1
    assert campaign.undo() == tiles[-1].pair
    standing = {row.pair for row in campaign.log().standing()}
    assert standing.isdisjoint(one.pair for one in tiles)
    assert campaign.log().effort.presses == before


def test_the_setting_turns_sheets_off_and_bounds_their_size(campaign: Campaign) -> None:
    campaign.store.set(sheets=LEAST_TILES)
    assert len(to_sheet(campaign)) == LEAST_TILES
    campaign.store.set(sheets=0)
    assert all(one.sheet is None for one in take(campaign, "you", "you", 3))


def test_sheets_are_asked_while_the_machine_is_behind(campaign: Campaign) -> None:
    kinds = truth(campaign)
    seen = set()
    while campaign.log().news(campaign.rounds.seen) < PLACE.per_round + 10:
        for question in take(campaign, "me", "me", 1):
            give(campaign, question, verdict_of(kinds, question.pair))
            if campaign.log().news(campaign.rounds.seen) > PLACE.per_round and question.sheet is not None:
                seen.add(question.sheet)
    assert seen


def test_a_sheet_goes_out_and_in_again_with_its_answers(campaign: Campaign, tmp_path: Path) -> None:
    tiles = to_sheet(campaign, of_group=False)
    for question in tiles:
        give(campaign, question, SIMILAR)
    write_answers(campaign, tmp_path / "answers.csv")
    presses = campaign.log().effort.presses
    archive = campaign.archive()
    other = turn.begin(tmp_path / "other", archive, PLACE, backbone=SHRUNK)
    read_answers(other, tmp_path / "answers.csv")
    assert [row.sheet for row in other.log().rows] == [row.sheet for row in campaign.log().rows]
    assert [row.guess for row in other.log().rows] == [row.guess for row in campaign.log().rows]
    assert other.log().effort.presses == presses
    other.close()


def test_a_campaign_with_sheets_takes_fewer_acts_than_answers(taught: Path) -> None:
    campaign = Campaign.open(taught)
    log = campaign.log()
    names = {row.sheet for row in log.standing() if row.sheet is not None}
    tiles = [row for row in log.standing() if row.sheet is not None]
    changed = sum(row.verdict != row.guess for row in tiles)
    assert len(names) >= 2
    assert log.effort.presses == log.given - len(tiles) + len(names) + changed
    assert log.effort.presses < 0.7 * log.given
    campaign.close()
