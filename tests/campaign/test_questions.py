"""A live campaign that places images: each question is made in the light of the answers before it."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest

from anneal.archive.catalog import open_archive
from anneal.campaign import progress, turn
from anneal.campaign.campaign import FROZEN, Campaign, Pair, pairs_of, with_lot
from anneal.campaign.store import AUDIT, Event, Questions
from anneal.method import placing
from anneal.method.snapshot import Order, Snapshot
from anneal.network import backbones
from anneal.pairs import UNKNOWN, Ids, Pairs, Verdict
from anneal.settings import Plan

SIMILAR, DISSIMILAR, UNSURE = Verdict
PLAN = Plan(px=64, views=1, strategy="place", per_round=60, recheck=0, audit=0.1)
Open = Callable[[], Campaign]


@pytest.fixture(scope="session")
def made(drawn: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fresh from init; copy it before answering."""
    folder = tmp_path_factory.mktemp("placing") / "campaign"
    turn.begin(folder, open_archive(drawn, 64, cache), PLAN).close()
    return folder


@pytest.fixture
def opened(made: Path, tmp_path: Path) -> Iterator[Open]:
    """Opens a copy of it, the same one each time."""
    folder = Path(shutil.copytree(made, tmp_path / "campaign"))
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(Campaign.open(folder)))


@pytest.fixture
def campaign(opened: Open) -> Campaign:
    return opened()


def kinds(campaign: Campaign) -> list[str]:
    return [str(name) for name in campaign.archive().labels]


def truth(kinds: list[str], pair: Pair) -> Verdict:
    return SIMILAR if kinds[pair[0]] == kinds[pair[1]] else DISSIMILAR


def chosen(campaign: Campaign, pair: Pair) -> bool:
    asker = campaign.store.question(*pair)
    assert asker is not None
    return asker[1] != AUDIT


def play(campaign: Campaign, n: int) -> list[Pair]:
    """An oracle answers n questions, one at a time; these."""
    asked, names = [], kinds(campaign)
    for _ in range(n):
        (pair,) = campaign.take("me", "h", 1)
        assert campaign.closure().relations.of(pairs_of([pair])).tolist() == [UNKNOWN]
        campaign.answer(*pair, truth(names, pair))
        asked.append(pair)
    return asked


def order_of(campaign: Campaign, number: int = FROZEN) -> Ids:
    return np.asarray(np.load(campaign.round_folder(number) / "order.npy"))


def expected(campaign: Campaign, round_: int, answers: int, model: int = FROZEN) -> Pair:
    """What the strategy asks next, by itself."""
    known = campaign.closure().relations
    vectors = np.load(campaign.round_folder(model) / "vectors.npy")
    joins, beside = (np.load(campaign.round_folder(model) / f"{name}.npy") for name in ("joins", "beside"))
    order = Order(Pairs(*joins.T), order_of(campaign, model), beside)
    now = Snapshot(vectors, campaign.images, known, order=order)
    (pair,) = placing.place(now, 1, campaign.plan.rng(7, round_, answers))
    return pair


# -- one question after another --------------------------------------------------------------------


def test_init_leaves_an_order_and_only_the_lot_in_the_queue(campaign: Campaign) -> None:
    assert sorted(order_of(campaign).tolist()) == list(range(120))
    queue = campaign.store.questions()
    assert (queue.round, set(queue.strategies), len(queue)) == (0, {AUDIT}, 6)
    assert campaign.one_by_one
    assert campaign.aim is None  # what comes of placing is not steered


def test_every_question_is_what_the_strategy_asks_after_the_answers_so_far(campaign: Campaign) -> None:
    names, answers, tried = kinds(campaign), 0, list[tuple[Pair, Verdict, set[int]]]()
    for _ in range(50):
        wanted, sizes = expected(campaign, 0, answers), campaign.closure().relations
        (pair,) = campaign.take("me", "h", 1)
        if chosen(campaign, pair):
            assert pair == wanted
            alone = {i for i in pair if sizes.sizes[sizes.group[i]] == 1}
            tried.append((pair, truth(names, pair), alone))
            answers += 1
        campaign.answer(*pair, truth(names, pair))
    assert answers == 45
    again = [  # refused by one group, tried with another
        image
        for n, (pair, verdict, alone) in enumerate(tried)
        for image in alone
        if verdict == DISSIMILAR and any(image in later for later, _, left in tried[n + 1 :] if image in left)
    ]
    assert len(again) > 5
    for n, (pair, verdict, _) in enumerate(tried):
        later = [left for _, _, left in tried[n + 1 :]]
        assert verdict == DISSIMILAR or not any(set(pair) & left for left in later)  # both have a place
    rows = campaign.store.standing()
    assert {(row.strategy, row.round) for row in rows} == {("place", 0), (AUDIT, 0)}


def test_one_question_in_ten_is_drawn_by_lot_until_the_lot_is_used_up(campaign: Campaign) -> None:
    asked = play(campaign, 75)
    assert [n for n, pair in enumerate(asked) if not chosen(campaign, pair)] == [5, 15, 25, 35, 45, 55]
    assert len(set(asked)) == 75


def test_a_screen_that_looks_ahead_is_given_as_many_as_it_wants(campaign: Campaign) -> None:
    names, lots, given = kinds(campaign), 0, set[Pair]()
    for _ in range(60):
        taken = campaign.take("me", "h", 6)
        assert len(set(taken)) == 6
        assert campaign.take("me", "h", 6) == taken  # asking again changes nothing
        given |= set(taken)
        lots += not chosen(campaign, taken[0])
        campaign.answer(*taken[0], truth(names, taken[0]))
    assert lots in (5, 6)
    assert len(campaign.store.questions()) <= len(given) + 2  # of the lot, not given yet


def test_reopening_in_between_changes_nothing(opened: Open, made: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(made, tmp_path / "other"))
    with closing(Campaign.open(other)) as campaign:
        asked = play(campaign, 30)
    again = []
    for _ in range(30):
        with closing(opened()) as campaign:
            again += play(campaign, 1)
    assert again == asked


def test_an_undone_answer_s_pair_is_shown_again(campaign: Campaign) -> None:
    play(campaign, 8)
    (pair,) = campaign.take("me", "h", 1)
    campaign.answer(*pair, SIMILAR)
    assert campaign.take("me", "h", 1) != [pair]
    assert campaign.undo() == pair
    assert campaign.take("me", "h", 2, [pair])[0] == pair


def test_next_pair_makes_questions_too(campaign: Campaign) -> None:
    wanted = expected(campaign, 0, 0)
    assert campaign.next_pair() == campaign.next_pair() == wanted
    campaign.answer(*wanted, DISSIMILAR)
    assert campaign.next_pair() == expected(campaign, 0, 1) != wanted


# -- several people --------------------------------------------------------------------------------


def test_no_two_people_are_asked_the_same_pair_or_place_the_same_image(
    campaign: Campaign, rng: np.random.Generator
) -> None:
    names, founder = kinds(campaign), int(order_of(campaign)[0])
    shown: dict[str, list[Pair]] = {"ann": [], "bob": [], "carl": []}
    for _ in range(120):
        who = str(rng.choice(list(shown)))
        shown[who] = campaign.take(who, who, int(rng.integers(1, 5)))
        assert shown[who], "there is something to ask everybody"
        every = [pair for pairs in shown.values() for pair in pairs]
        assert len(every) == len(set(every))
        said = {i for row in campaign.store.standing() if row.strategy != AUDIT for i in (row.a, row.b)}
        said |= {founder} if not said else set()
        placed = [i for pair in every if chosen(campaign, pair) for i in pair if i not in said]
        assert len(placed) == len(set(placed))
        if rng.random() < 0.7:
            pair = shown[who].pop(0)
            campaign.answer(*pair, truth(names, pair), who)
    strategies = [row.strategy for row in campaign.store.standing()]
    assert strategies.count("place") > 60
    assert set(strategies) == {"place", AUDIT}


def test_with_overlap_two_people_judge_the_same_and_new_ones_come_too(campaign: Campaign) -> None:
    campaign.store.set(overlap=0.5)
    names = kinds(campaign)
    for n in range(60):
        who = ("ann", "bob")[n % 2]
        (pair, *_) = campaign.take(who, who, 2)
        campaign.answer(*pair, truth(names, pair), who)
    (both,) = progress.agreement(campaign)
    assert (both["one"], both["other"], both["agreement"]) == ("ann", "bob", 1.0)
    assert 10 <= both["pairs"] <= 25


# -- what is held back -----------------------------------------------------------------------------


def test_a_chosen_pair_whose_answer_is_held_back_is_learnt_from_and_not_asked(campaign: Campaign) -> None:
    first = expected(campaign, 0, 0)
    campaign.store.add([Event(*first, DISSIMILAR, "ann", AUDIT, 0)])
    assert len(campaign.evidence()) == 0
    (pair,) = campaign.take("me", "h", 1)
    assert list(campaign.evidence().pairs) == [first]
    assert pair == expected(campaign, 0, 1) != first
    (row,) = campaign.store.standing()
    assert (row.verdict, row.annotator, row.strategy, row.round) == (DISSIMILAR, "ann", "place", 0)
    assert row.entered == "machine"


def test_a_question_that_is_chosen_and_in_the_lot_is_learnt_from(campaign: Campaign) -> None:
    first = expected(campaign, 0, 0)
    campaign.store.queue_more(Questions.of(pairs_of([first]), 0, AUDIT), first=True)
    assert campaign.take("me", "h", 1) == [first]
    campaign.answer(*first, SIMILAR)
    assert (list(campaign.evidence().pairs), progress.standing(campaign).held_back) == ([first], 0)


def test_spread_puts_one_of_the_lot_among_so_many() -> None:
    lot, some = [(90, 91), (92, 93), (94, 95)], [(0, i) for i in range(1, 30)]
    found, missing = with_lot(lot, some, (0, 0), 0.25, 14)
    assert ([found.index(pair) for pair in lot], missing) == ([2, 6, 10], 0)
    assert [pair for pair in found if pair not in lot] == some[:11]
    assert with_lot(lot[1:], some[:2], (5, 1), 0.25, 4) == ([some[0], lot[1], some[1]], 1)
    assert with_lot(lot, [], (0, 0), 0.0, 3) == ([], 3)
    assert with_lot(lot, some, (40, 0), 0.25, 2) == (lot[:2], 0)  # behind with them


# -- what is lost, and what is over ----------------------------------------------------------------


def test_without_an_order_answering_goes_on_with_near_and_far_neighbours(campaign: Campaign) -> None:
    (campaign.round_folder(FROZEN) / "order.npy").unlink()
    asked = play(campaign, 30)
    assert len(set(asked)) == 30
    assert {row.strategy for row in campaign.store.standing()} == {"cold", AUDIT}


def test_without_vectors_what_is_in_the_queue_is_asked(campaign: Campaign) -> None:
    lot = list(campaign.store.questions().pairs)
    (campaign.round_folder(FROZEN) / "vectors.npy").unlink()
    assert campaign.take("me", "h", 20) == lot


def test_when_every_pair_is_known_there_is_nothing_left_to_ask(
    drawn: Path, cache: Path, tmp_path: Path
) -> None:
    archive = open_archive(drawn, 64, cache)
    images = np.array([3, 5, 33, 38, 77])
    with closing(turn.begin(tmp_path / "few", archive, PLAN, images=images)) as campaign:
        names, asked = kinds(campaign), set[Pair]()
        while taken := campaign.take("me", "h", 3):
            assert taken[0] not in asked
            asked.add(taken[0])
            campaign.answer(*taken[0], truth(names, taken[0]))
        i, j = np.triu_indices(5, 1)
        verdicts = campaign.closure().relations.of(Pairs.of(images[i], images[j]))
        assert UNKNOWN not in verdicts
        assert progress.standing(campaign).queued == 0


# -- the machine's turn ----------------------------------------------------------------------------


def test_after_a_turn_the_new_round_s_space_and_order_are_used(campaign: Campaign) -> None:
    play(campaign, 40)
    turn.turn(campaign, backbones.load(PLAN.backbone))
    assert campaign.serving() == campaign.newest() == 0
    queue = campaign.store.questions()
    assert (queue.round, set(queue.strategies)) == (1, {AUDIT})
    known, order = campaign.closure().relations, order_of(campaign, 0)
    assert (known.sizes[known.group[order]] == 1).all()  # only what has no place yet
    assert order.tolist() != order_of(campaign)[: len(order)].tolist()
    for answers in range(4):
        wanted = expected(campaign, 1, answers, model=0)
        (pair,) = campaign.take("me", "h", 1)
        assert pair == wanted
        campaign.answer(*pair, truth(kinds(campaign), pair))
    rows = campaign.store.standing()[-4:]
    assert {(row.strategy, row.round) for row in rows} == {("place", 1)}
