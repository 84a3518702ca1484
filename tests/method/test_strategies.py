"""One contract for every strategy, then what each one asks."""

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from anneal.errors import UsageError
from anneal.method import diversity, placing, steering
from anneal.method import strategies as strategies_module
from anneal.method.groups import spread_labels
from anneal.method.mining import Mined, cosine, mine, pairwise
from anneal.method.neighbours import unit
from anneal.method.relations import CLOSURES, Known, Relations, none
from anneal.method.snapshot import Agenda, Snapshot
from anneal.method.strategies import (
    Strategy,
    batch,
    bcgue,
    chosen,
    cold,
    listed,
    mgue,
    mgue_threshold,
    pfma,
    random,
    strategies,
)
from anneal.method.uncertainty import PairProbability, fit_logistic
from anneal.pairs import UNKNOWN, Answers, Floats, Pair, Pairs, Verdict
from anneal.settings import Settings

SIMILAR, DISSIMILAR, UNSURE = Verdict
Judged = tuple[int, int, int]
N = 16  # images of the archive; strategies may ask about IMAGES only
IMAGES = np.array([15, 2, 3, 11, 5, 7, 8, 0, 9, 13, 12, 1])
SOME_ANSWERS: list[Judged] = [  # with implied, unsure and contradicted pairs
    (15, 2, SIMILAR),
    (2, 3, SIMILAR),
    (3, 11, DISSIMILAR),
    (5, 7, DISSIMILAR),
    (7, 8, SIMILAR),
    (4, 6, SIMILAR),
    (4, 0, DISSIMILAR),
    (4, 14, DISSIMILAR),
    (0, 9, UNSURE),
    (0, 13, UNSURE),
    (12, 1, SIMILAR),
    (1, 12, DISSIMILAR),
]
PAPER = Settings(share=0.0)  # without a lean


def most_similar(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
    """A strategy as a user writes it."""
    return mine(snapshot.images, cosine(snapshot.vectors), snapshot.known, n, rng).pairs


EVERY = {
    **strategies(Settings()),
    "mgue-paper": strategies(PAPER)["mgue"],
    "mgue-logistic": strategies(Settings(threshold="logistic", diversity="none"))["mgue"],
    "place-ablation": Strategy(
        "place-ablation", partial(placing.plan, join=False, soon=False, neighbourhood=False), placing.pick
    ),
    "own": batch("own", most_similar),
}
FEWER_CHOICES = {"place": 5, "place-ablation": 4}  # of 8, in an archive this small
every_strategy = pytest.mark.parametrize("strategy", EVERY.values(), ids=EVERY.keys())
every_closure = pytest.mark.parametrize("closure", CLOSURES.keys())


@pytest.fixture(autouse=True)
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The archives here have few pairs: a small sample of them is as good."""
    monkeypatch.setattr(steering, "SAMPLE", 5_000)


def seed(number: int) -> np.random.Generator:
    return np.random.default_rng(number)


def answers_of(rows: Iterable[Judged]) -> Answers:
    columns = np.array(list(rows), dtype=np.int64).reshape(-1, 3)
    return Answers.of(Pairs.of(columns[:, 0], columns[:, 1]), columns[:, 2])


def relations(n: int, rows: Iterable[Judged], closure: str = "full") -> Relations:
    return CLOSURES[closure](n, answers_of(rows)).relations


def classifier(vectors: Floats) -> PairProbability:
    """A pair classifier with random weights."""
    rng = seed(9)
    d = vectors.shape[1]
    wide = 32
    left = vectors @ rng.normal(size=(d, wide))
    right = vectors @ rng.normal(size=(d, wide)) + 0.1
    second = rng.normal(size=(wide, wide)) / wide
    return PairProbability(left, right, second, rng.normal(size=wide), rng.normal(size=wide), 0.2)


def random_vectors() -> Floats:
    return unit(seed(7).normal(size=(N, 5)))


def snapshot(
    closure: str = "full", vectors: Floats | None = None, answers: Iterable[Judged] = SOME_ANSWERS
) -> Snapshot:
    """All that a strategy can see, after one round."""
    vectors = random_vectors() if vectors is None else vectors
    given = answers_of(answers)
    known = CLOSURES[closure](N, given).relations
    frozen = unit(vectors + 0.1 * seed(6).normal(size=vectors.shape))
    return Snapshot(
        vectors=vectors,
        images=IMAGES,
        known=known,
        answers=given,
        rounds=np.zeros(len(given), dtype=np.int64),
        frozen=frozen,
        membership=spread_labels(frozen, IMAGES, known) if len(given) else None,
        probability=classifier(vectors),
        agenda=Agenda(),
    )


def with_images(shown: Snapshot, images: list[int]) -> Snapshot:
    return replace(shown, images=np.array(images, dtype=np.int64), membership=None)


def ask(strategy: Strategy, shown: Snapshot, n: int, number: int, pending: Pairs | None = None) -> list[Pair]:
    """Plan a round, then pick n pairs."""
    agenda = strategy.plan(shown, max(n, 1), seed(number))
    asked = replace(shown, pending=Pairs.none() if pending is None else pending)
    return list(strategy.pick(asked, agenda, n, seed(number + 1000)))


def pairs_with(known: Known, images: Iterable[int], verdict: int) -> set[Pair]:
    """The pairs of these images with this verdict, answered or implied."""
    pairs = Pairs.from_list(combinations(sorted(set(images)), 2))
    return set(pairs[known.of(pairs) == verdict])


def unknown(shown: Snapshot) -> set[Pair]:
    return pairs_with(shown.known, shown.images.tolist(), UNKNOWN)


def contents(shown: Snapshot) -> list[bytes]:
    """Every array that a strategy could change, as bytes."""
    classifier = shown.probability
    assert isinstance(classifier, PairProbability)
    assert shown.frozen is not None
    assert shown.membership is not None
    assert isinstance(shown.known, Relations)
    arrays = [shown.vectors, shown.images, shown.frozen, shown.rounds, shown.known.group]
    arrays += [shown.answers.pairs.a, shown.answers.pairs.b, shown.answers.verdicts]
    arrays += [shown.pending.a, shown.pending.b]
    for matrix in (shown.known.links, shown.known.set_aside):
        arrays += [matrix.data, matrix.indices, matrix.indptr]
    arrays += list(vars(shown.membership).values())
    arrays += [value for value in vars(classifier).values() if isinstance(value, np.ndarray)]
    return [array.tobytes() for array in arrays]


def parts(agenda: Agenda) -> tuple[list[Pair], list[int], list[list[int]], list[list[int]], float]:
    nearby = agenda.beside.tolist(), agenda.near.tolist()
    return list(agenda.pairs), agenda.images.tolist(), *nearby, agenda.lean


# -- the contract ------------------------------------------------------------------------------------


@every_strategy
@every_closure
@pytest.mark.parametrize("n", [1, 4, 13])
def test_a_strategy_picks_n_distinct_unknown_pairs_that_are_not_pending(
    strategy: Strategy, closure: str, n: int
) -> None:
    shown = snapshot(closure)
    for number in range(3):
        first = ask(strategy, shown, n, number)
        assert len(set(first)) == len(first) == n
        assert set(first) <= unknown(shown)
        next_ones = ask(strategy, shown, n, number, pending=Pairs.from_list(first))
        assert len(set(next_ones)) == len(next_ones) == n
        assert set(next_ones) <= unknown(shown) - set(first)


@every_strategy
@every_closure
def test_a_strategy_picks_fewer_only_if_there_are_no_more(strategy: Strategy, closure: str) -> None:
    shown = snapshot(closure)
    left = unknown(shown)
    assert 30 < len(left) < 66
    for n in (len(left) - 1, len(left), len(left) + 1, 500):
        picked = ask(strategy, shown, n, n)
        assert len(picked) == min(n, len(left))
        assert set(picked) <= left
    pending = Pairs.from_list(sorted(left)[::3])
    for n in (len(left) - len(pending), 500):
        picked = ask(strategy, shown, n, n, pending)
        assert len(picked) == len(left) - len(pending)
        assert set(picked) == left - set(pending)


@every_strategy
def test_a_strategy_picks_nothing_where_everything_is_known(strategy: Strategy) -> None:
    verdicts = (SIMILAR, DISSIMILAR, UNSURE)
    rows = [(a, b, verdicts[(a + b) % 3]) for a, b in combinations(range(N), 2)]
    assert ask(strategy, snapshot("none", answers=rows), 5, 0) == []


@every_strategy
@pytest.mark.parametrize("images", [[], [3], [3, 3]])
@pytest.mark.parametrize("answers", [SOME_ANSWERS, []], ids=["something-known", "nothing-known"])
def test_fewer_than_two_images_have_no_pair(
    strategy: Strategy, images: list[int], answers: list[Judged]
) -> None:
    assert ask(strategy, with_images(snapshot(answers=answers), images), 3, 0) == []


@pytest.mark.parametrize("images", [[], [3], [3, 3]])
def test_fewer_than_two_images_have_no_pair_with_a_lean_either(images: list[int]) -> None:
    shown = replace(leaning(snapshot(), 0.5), images=np.array(images, dtype=np.int64))
    assert parts(mgue(shown, 3, seed(0), Settings())) == ([], [], [], [], 0.0)


@every_strategy
def test_the_last_two_images_are_paired(strategy: Strategy) -> None:
    shown = Snapshot(np.eye(N), np.array([9, 4]), relations(N, []))
    assert ask(strategy, shown, 3, 0) == [(4, 9)]


@every_strategy
def test_no_pair_is_picked_when_none_is_wanted(strategy: Strategy) -> None:
    assert ask(strategy, snapshot(), 0, 0) == []


@every_strategy
def test_the_seed_determines_the_agenda_and_the_pairs(strategy: Strategy) -> None:
    for number in range(3):
        agenda = strategy.plan(snapshot(), 6, seed(number))
        assert parts(agenda) == parts(strategy.plan(snapshot(), 6, seed(number)))
        assert ask(strategy, snapshot(), 9, number) == ask(strategy, snapshot(), 9, number)


@every_strategy
def test_ties_are_broken_by_the_generator(strategy: Strategy) -> None:
    shown = snapshot(vectors=np.tile(np.eye(1, 5), (N, 1)))
    shown = replace(shown, frozen=shown.vectors, membership=None)
    lists = {tuple(ask(strategy, shown, 4, number)) for number in range(8)}
    least = FEWER_CHOICES.get(strategy.name, 8)
    assert len(lists) >= least
    assert len({frozenset(picked) for picked in lists}) >= least


@every_strategy
def test_a_strategy_changes_neither_the_snapshot_nor_the_agenda(strategy: Strategy) -> None:
    shown = replace(snapshot(), pending=Pairs.from_list([(5, 11)]))
    before = contents(shown)
    agenda = strategy.plan(shown, 6, seed(0))
    planned = parts(agenda)
    strategy.pick(shown, agenda, 6, seed(1))
    strategy.pick(shown, agenda, 500, seed(1))
    assert contents(shown) == before
    assert parts(agenda) == planned


@every_strategy
@pytest.mark.parametrize("closure", ["full", "none"])
def test_a_pick_after_further_answers_never_returns_a_known_pair(strategy: Strategy, closure: str) -> None:
    """One agenda, and answers until nothing is left; some are unsure, and some contradict others."""
    rng = seed(5)
    shown = snapshot(closure, answers=[])
    agenda = strategy.plan(shown, 8, seed(0))
    given: list[Judged] = []
    while picked := list(strategy.pick(shown, agenda, 3, seed(len(given)))):
        open_pairs = unknown(shown) - set(shown.pending)
        assert set(picked) <= open_pairs
        assert len(set(picked)) == len(picked) == min(3, len(open_pairs))
        a, b = picked[0]
        verdict = SIMILAR if a % 3 == b % 3 else DISSIMILAR
        if rng.random() < 0.2:
            verdict = Verdict(int(rng.integers(1, 4)))
        given.append((a, b, verdict))
        given_so_far = answers_of(given)
        shown = replace(
            shown,
            known=relations(N, given, closure),
            answers=given_so_far,
            rounds=np.zeros(len(given), dtype=np.int64),
            pending=Pairs.from_list(picked[1:2]),
        )
    assert unknown(shown) <= set(shown.pending)


@every_strategy
def test_implied_pairs_are_never_asked(strategy: Strategy) -> None:
    """A chain of similar answers implies all its pairs, so only pairs between two chains are left."""
    chains = [(i, i + 1, SIMILAR) for i in (*range(5), *range(8, 13))]
    shown = with_images(snapshot(answers=chains), [0, 5, 8, 13])
    assert set(ask(strategy, shown, 100, 0)) == {(0, 8), (0, 13), (5, 8), (5, 13)}
    separated = with_images(snapshot(answers=[*chains, (2, 10, DISSIMILAR)]), [0, 5, 8, 13])
    assert ask(strategy, separated, 100, 0) == []


# -- the table, and strategies of one's own ----------------------------------------------------------


def test_strategies_by_name() -> None:
    table = strategies(Settings())
    assert list(table) == ["place", "mgue", "bcgue", "random", "cobra", "pfma"]
    assert all(strategy.name == name for name, strategy in table.items())
    assert {name for name, strategy in table.items() if strategy.pair_classifier} == {"bcgue"}
    assert {name for name, strategy in table.items() if strategy.groups} == {"place"}


@pytest.mark.parametrize("name", ["place", "mgue", "bcgue", "random", "cobra", "pfma"])
def test_the_settings_name_a_strategy(name: str) -> None:
    assert chosen(Settings(strategy=name)).name == name


@pytest.mark.parametrize("name", ["best", "best:", "cal"])
def test_an_unknown_name_is_refused_with_the_names_there_are(name: str) -> None:
    with pytest.raises(UsageError, match="choose place or mgue, or give module:name"):
        chosen(Settings(strategy=name))


@pytest.mark.parametrize("name", ["no_such_module:select", "json:no_such_function"])
def test_a_strategy_that_cannot_be_imported_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    with pytest.raises(UsageError, match=f"'{name}' could not be imported: "):
        chosen(Settings(strategy=name))


def test_a_function_or_a_strategy_of_a_module_in_this_folder_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from anneal.method.strategies import batch, random

def select(snapshot, n, rng):
    return random(snapshot, n, rng)

with_classifier = batch("mine", select, pair_classifier=True)
"""
    (tmp_path / "strategy_in_this_folder.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    own = chosen(Settings(strategy="strategy_in_this_folder:select"))
    assert own.name == "strategy_in_this_folder:select"
    assert ask(own, snapshot(), 5, 3) == list(random(snapshot(), 5, seed(3)))
    other = chosen(Settings(strategy="strategy_in_this_folder:with_classifier"))
    assert other.name == "mine"
    assert other.pair_classifier


def test_a_batch_strategy_asks_its_list_in_order_and_skips_what_became_known() -> None:
    shown = snapshot(answers=[])
    own = batch("own", most_similar)
    agenda = own.plan(shown, 10, seed(0))
    planned = list(agenda.pairs)
    assert planned == list(most_similar(shown, 10, seed(0)))
    assert list(own.pick(shown, agenda, 4, seed(1))) == planned[:4]
    later = replace(
        shown,
        known=relations(N, [(*planned[0], UNSURE), (*planned[2], UNSURE)]),
        pending=Pairs.from_list([planned[1]]),
    )
    assert list(own.pick(later, agenda, 4, seed(1))) == planned[3:7]


def test_a_batch_strategy_may_select_too_few_pairs_known_ones_and_the_same_twice() -> None:
    shown = snapshot()

    def careless(snapshot: Snapshot, n: int, rng: np.random.Generator) -> Pairs:
        return Pairs.from_list([(15, 2), (5, 11), (5, 11), (0, 9), (2, 5)])

    for number in range(3):
        picked = ask(batch("careless", careless), shown, 9, number)
        assert picked[:2] == [(5, 11), (2, 5)]
        assert len(set(picked)) == len(picked) == 9
        assert set(picked) <= unknown(shown)


@pytest.mark.parametrize(
    ("name", "more"), [("own", cold), ("bcgue", cold), ("mgue-paper", cold), ("random", random)]
)
def test_a_list_that_is_used_up_is_filled_without_a_plan(name: str, more: partial[Pairs]) -> None:
    shown = snapshot()
    agenda = Agenda(Pairs.from_list([(5, 11)]))
    picked = list(EVERY[name].pick(shown, agenda, 6, seed(4)))
    added = [pair for pair in more(shown, 6, seed(4)) if pair != (5, 11)]
    assert picked == [(5, 11), *added[:5]]


# -- what each one asks ------------------------------------------------------------------------------


def mean_and_std(vectors: Floats, pairs: set[Pair]) -> tuple[float, float]:
    s = [float(vectors[a] @ vectors[b]) for a, b in pairs]
    mean = sum(s) / len(s)
    return mean, (sum((x - mean) ** 2 for x in s) / len(s)) ** 0.5


def nearest_to(shown: Snapshot, threshold: float) -> list[Pair]:
    """The unknown pairs, the one nearest to a similarity first."""
    vectors = shown.vectors
    return sorted(unknown(shown), key=lambda pair: abs(vectors[pair[0]] @ vectors[pair[1]] - threshold))


@pytest.mark.parametrize("lam", [0.0, 3.0])
@every_closure
def test_mgue_without_diversity_asks_the_pairs_nearest_the_threshold(lam: float, closure: str) -> None:
    shown = snapshot(closure)
    mean_similar, std_similar = mean_and_std(shown.vectors, pairs_with(shown.known, range(N), SIMILAR))
    mean_other, std_other = mean_and_std(shown.vectors, pairs_with(shown.known, range(N), DISSIMILAR))
    alpha = (mean_similar + mean_other - lam * (std_similar - std_other)) / 2
    settings = replace(PAPER, lam=lam, diversity="none")
    assert mgue_threshold(shown, settings) == pytest.approx(alpha)
    planned = strategies(settings)["mgue"].plan(shown, 7, seed(0))
    assert parts(planned) == (nearest_to(shown, alpha)[:7], [], [], [], 0.0)


def test_mgue_with_a_logistic_threshold_asks_where_the_answers_are_as_likely_either_way() -> None:
    shown = snapshot()
    settled = answers_of(row for row in SOME_ANSWERS if row[2] != UNSURE)
    s = pairwise(shown.vectors, settled.pairs)
    _, middle = fit_logistic(s, settled.verdicts == SIMILAR)
    settings = replace(PAPER, threshold="logistic", diversity="none")
    assert mgue_threshold(shown, settings) == middle
    planned = strategies(settings)["mgue"].plan(shown, 7, seed(0))
    assert list(planned.pairs) == nearest_to(shown, middle)[:7]


def test_bcgue_without_diversity_asks_the_pairs_nearest_one_half() -> None:
    shown = snapshot()
    assert shown.probability is not None
    p = shown.probability(np.arange(N), np.arange(N))
    nearest = sorted(unknown(shown), key=lambda pair: abs(p[pair] - 0.5))
    planned = strategies(Settings(diversity="none"))["bcgue"].plan(shown, 7, seed(0))
    assert list(planned.pairs) == nearest[:7]


def guided(name: str, shown: Snapshot, n: int, diverse: diversity.Diversity | None = None) -> list[Pair]:
    """MGUE or BCGUE with a diversity, or with its default."""
    if name == "bcgue":
        planned = bcgue(shown, n, seed(0), diverse) if diverse else bcgue(shown, n, seed(0))
        return list(planned)
    agenda = mgue(shown, n, seed(0), PAPER, diverse) if diverse else mgue(shown, n, seed(0), PAPER)
    return list(agenda.pairs)


mgue_and_bcgue = pytest.mark.parametrize("name", ["mgue", "bcgue"])


@mgue_and_bcgue
def test_diversity_chooses_n_out_of_the_4n_most_uncertain_pairs(name: str) -> None:
    calls: list[tuple[list[Pair], int]] = []

    def last(vectors: Floats, mined: Mined, n: int, rng: np.random.Generator) -> Pairs:
        assert vectors is shown.vectors
        calls.append((list(mined.pairs), n))
        return mined.pairs[-n:]

    shown = snapshot()
    most_uncertain = guided(name, shown, 20, diversity.none)
    assert guided(name, shown, 5, last) == most_uncertain[15:]
    assert calls == [(most_uncertain, 5)]


@mgue_and_bcgue
def test_diversity_is_by_clustering_by_default(name: str) -> None:
    shown = snapshot()
    clustered = guided(name, shown, 5)
    assert clustered == guided(name, shown, 5, diversity.kmeans)
    most_uncertain = guided(name, shown, 20, diversity.none)
    assert clustered != most_uncertain[:5]
    assert clustered[0] == most_uncertain[0]  # the best of all is the best of its cluster
    assert set(clustered) < set(most_uncertain)


@pytest.mark.parametrize("verdict", [SIMILAR, DISSIMILAR, UNSURE])
def test_mgue_asks_as_at_the_start_while_one_kind_of_verdict_is_known(verdict: Verdict) -> None:
    shown = snapshot(answers=[(0, 1, verdict), (2, 3, verdict)])
    assert np.isnan(mgue_threshold(shown, Settings()))
    for number in range(3):
        planned = mgue(shown, 5, seed(number), Settings())
        assert parts(planned) == (list(cold(shown, 5, seed(number))), [], [], [], 0.0)


def test_bcgue_asks_as_at_the_start_without_a_classifier() -> None:
    shown = replace(snapshot(), probability=None)
    assert list(bcgue(shown, 5, seed(1))) == list(cold(shown, 5, seed(1)))


def close_couples() -> Floats:
    """Eight couples; the images of couple i are i / 20 apart, and couples are far from each other."""
    vectors = np.zeros((N, 24))
    for i in range(8):
        vectors[[2 * i, 2 * i + 1], i] = 1
        vectors[2 * i, 8 + i] = -0.05 * (i + 1) / 2
        vectors[2 * i + 1, 8 + i] = 0.05 * (i + 1) / 2
    return unit(vectors)


def test_cobra_asks_the_most_similar_pair_of_representatives_that_nothing_implies() -> None:
    """As many super-instances as images: each represents itself."""
    cobra = EVERY["cobra"]
    every = np.arange(N)
    shown = Snapshot(close_couples(), every, relations(N, []))
    agenda = cobra.plan(shown, N, seed(0))
    assert sorted(agenda.images.tolist()) == every.tolist()
    couples = [(2 * i, 2 * i + 1) for i in range(8)]
    assert list(cobra.pick(shown, agenda, 8, seed(1))) == couples
    merged = [(*pair, SIMILAR) for pair in couples[:3]]
    parted = replace(shown, known=relations(N, [*merged, (0, 2, DISSIMILAR)]))
    assert list(cobra.pick(parted, agenda, 5, seed(1))) == couples[3:]


def test_cobra_s_super_instances_are_represented_by_their_medoid_or_by_an_image_with_answers() -> None:
    """Four tight clusters of four images, the third of each in the middle."""
    rng = seed(3)
    vectors = np.repeat(np.eye(4, 8), 4, axis=0)
    vectors[:, 4:] += 0.2 * np.tile(np.array([[1, 0], [-1, 0.2], [0, 0.1], [0.1, -1]]), (4, 2))
    vectors += 0.001 * rng.normal(size=vectors.shape)
    shown = Snapshot(unit(vectors), np.arange(N), relations(N, []))
    assert sorted(EVERY["cobra"].plan(shown, 4, seed(0)).images.tolist()) == [2, 6, 10, 14]
    asked = replace(shown, known=relations(N, [(0, 5, DISSIMILAR)]))
    planned = EVERY["cobra"].plan(asked, 2, seed(0))
    assert sorted(planned.images.tolist()) == [0, 5, 10, 14]
    assert (0, 5) not in list(planned.pairs)


def pfma_by_hand(shown: Snapshot, query: int, threshold: float) -> list[Pair]:
    """The nearest unknown image and the most ambiguous one, in turn."""
    s = shown.vectors @ shown.vectors[query]
    others = [int(i) for i in shown.images if i != query and tuple(sorted((int(i), query))) in unknown(shown)]
    positive = sorted(others, key=lambda i: -s[i])
    ambiguous = sorted(others, key=lambda i: abs(s[i] - threshold))
    both = [i for pair in zip(positive, ambiguous, strict=True) for i in pair]
    return [(min(query, i), max(query, i)) for i in dict.fromkeys(both)][:10]


def test_pfma_asks_a_likely_positive_and_the_most_ambiguous_image_in_turn() -> None:
    shown = snapshot()
    settled = answers_of(row for row in SOME_ANSWERS if row[2] != UNSURE)
    _, middle = fit_logistic(pairwise(shown.vectors, settled.pairs), settled.verdicts == SIMILAR)
    for number in range(4):
        first, second = seed(number).permutation(np.sort(IMAGES))[:2].tolist()
        by_hand = pfma_by_hand(shown, first, middle)
        by_hand += pfma_by_hand(shown, second, middle)
        assert list(pfma(shown, 20, seed(number))) == by_hand
        assert list(pfma(shown, 7, seed(number))) == by_hand[:7]


def test_pfma_asks_likely_positives_alone_before_there_are_answers() -> None:
    shown = snapshot(answers=[])
    query = int(seed(5).permutation(np.sort(IMAGES))[0])
    nearest = sorted(set(IMAGES.tolist()) - {query}, key=lambda i: -shown.vectors[i] @ shown.vectors[query])
    assert list(pfma(shown, 4, seed(5))) == [(min(query, i), max(query, i)) for i in nearest[:4]]


def chi_square(picked: list[Pair], possible: set[Pair]) -> float:
    assert set(picked) <= possible
    expected = len(picked) / len(possible)
    return sum((picked.count(pair) - expected) ** 2 / expected for pair in possible)


def test_random_is_uniform_over_unknown_pairs_that_are_not_pending() -> None:
    shown = with_images(snapshot(), [5, 2, 3, 11, 7, 0, 9])
    shown = replace(shown, pending=Pairs.from_list([(0, 2), (5, 9)]))
    left = unknown(shown) - set(shown.pending)
    assert len(left) == 14
    picked = [pair for number in range(600) for pair in random(shown, 3, seed(number))]
    assert chi_square(picked, left) < 34.6  # exceeded once in a thousand at 13 degrees of freedom


def test_random_is_uniform_where_few_pairs_are_left_among_many() -> None:
    n = 60
    left = {(3, 50), (7, 8), (20, 41)}
    pending = (1, 2)
    asked = [pair for pair in combinations(range(n), 2) if pair not in left | {pending}]
    known = relations(n, [(*pair, DISSIMILAR) for pair in asked], "none")
    shown = Snapshot(np.ones((n, 1)), np.arange(n), known, pending=Pairs.from_list([pending]))
    picked = [pair for number in range(300) for pair in random(shown, 1, seed(number))]
    assert chi_square(picked, left) < 13.8  # once in a thousand at 2 degrees of freedom
    assert set(random(shown, 3, seed(0))) == set(random(shown, 4, seed(0))) == left
    assert set(cold(shown, 3, seed(0))) == left


def test_cold_pairs_an_image_with_a_neighbour_of_a_rank_even_on_a_logarithmic_scale() -> None:
    n = 150
    vectors = unit(seed(11).normal(size=(n, 3)))
    shown = Snapshot(vectors, seed(12).permutation(n), none(n, Answers.none()).relations)
    rank = np.argsort(np.argsort(-(vectors @ vectors.T), axis=1), axis=1)  # 0 is the image itself
    ranks: list[int] = []
    for number in range(10):
        pairs = cold(shown, 100, seed(number))
        ranks += np.minimum(rank[pairs.a, pairs.b], rank[pairs.b, pairs.a]).tolist()
    assert len(ranks) == 1000
    assert min(ranks) == 1
    assert max(ranks) > 130
    # Ranks below r are log r / log 150 of the scale. It is a little more here, because the smaller of a
    # pair's two ranks is taken.
    for r in (4, 12, 50):
        share = np.log(r) / np.log(n)
        assert share - 0.03 < np.mean(np.array(ranks) < r) < share + 0.12
    first = {image for number in range(60) for pair in cold(shown, 1, seed(number)) for image in pair}
    assert len(first) > 60  # any image may come first


def test_cold_draws_from_some_of_the_images_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 150
    shown = Snapshot(unit(seed(11).normal(size=(n, 3))), np.arange(n), none(n, Answers.none()).relations)
    at_most = list(cold(shown, 100, seed(0)))
    monkeypatch.setattr(strategies_module, "LARGE", 150)
    assert list(cold(shown, 100, seed(0))) == at_most
    monkeypatch.setattr(strategies_module, "LARGE", 149)
    monkeypatch.setattr(strategies_module, "POOL", 20)
    asked = [cold(shown, 15, seed(number)) for number in range(4)]
    pools = [set(pairs.a.tolist()) | set(pairs.b.tolist()) for pairs in asked]
    assert all(len(pairs) == 15 for pairs in asked)
    assert all(len(pool) <= 20 for pool in pools)
    assert len(set.union(*pools)) > 40


def test_mgue_with_a_budget_asks_about_pairs_of_few_images() -> None:
    shown = snapshot()
    of_all = mgue(shown, 4, seed(0), PAPER).pairs
    within_budget = mgue(shown, 4, seed(0), PAPER, budget=66).pairs
    assert list(of_all) == list(within_budget)
    for number in range(4):
        one_anchor = mgue(shown, 4, seed(number), PAPER, budget=12).pairs
        assert len(one_anchor) == 4
        assert set.intersection(*({a, b} for a, b in one_anchor))


# -- steering ----------------------------------------------------------------------------------------


def leaning(shown: Snapshot, lean: float) -> Snapshot:
    """The snapshot after two rounds whose share of similar answers was met: the lean halves."""
    pairs = Pairs.from_list([(0, 1), (0, 2)] * 20)
    verdicts = [SIMILAR, DISSIMILAR] * 20
    rounds = np.repeat([0, 1], 20)
    return replace(shown, answers=Answers.of(pairs, verdicts), rounds=rounds, agenda=Agenda(lean=2 * lean))


def on_a_quarter_circle(n: int = 200) -> Snapshot:
    """Similarities of all sizes from 0 to 1, and forty answers."""
    angle = seed(14).uniform(0, np.pi / 2, n)
    vectors = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    rows = []
    for a, b in zip(range(40), range(40, 80), strict=True):
        rows.append((a, b, SIMILAR if vectors[a] @ vectors[b] > 0.97 else DISSIMILAR))
    return Snapshot(vectors, np.arange(n), relations(n, rows, "none"))


def test_a_lean_multiplies_the_share_of_pairs_above_the_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steering, "SAMPLE", 200_000)
    shown = on_a_quarter_circle()
    every = (shown.vectors @ shown.vectors.T)[np.triu_indices(200, 1)]

    def level(lean: float) -> float:
        """The mean share of pairs that are more similar than those asked."""
        planned = mgue(leaning(shown, lean), 5, seed(0), Settings(lam=0.0), diversity.none)
        assert planned.lean == lean
        return float(np.mean([(every > s).mean() for s in pairwise(shown.vectors, planned.pairs)]))

    own = level(0.0)
    assert 0.1 < own < 0.6
    for lean in (0.1, 0.4):
        assert level(lean) == pytest.approx(own * np.exp(lean), rel=0.1)
    assert level(20.0) > 0.99  # there are no pairs beyond


@pytest.mark.parametrize("name", ["bcgue", "random", "mgue-paper", "own"])
def test_strategies_other_than_mgue_have_no_lean_and_are_not_steered(name: str) -> None:
    shown = leaning(snapshot(), 1.0)
    planned = EVERY[name].plan(shown, 5, seed(3))
    assert parts(planned) == parts(EVERY[name].plan(snapshot(), 5, seed(3)))
    assert planned.lean == 0
    all_similar = replace(shown, answers=Answers.of(shown.answers.pairs, [SIMILAR] * 40))
    pairs = list(planned.pairs)
    assert list(EVERY[name].pick(all_similar, planned, 5, seed(3))) == pairs


@pytest.mark.parametrize("verdict", [SIMILAR, DISSIMILAR])
def test_mgue_asks_first_what_mends_the_share_of_similar_answers(verdict: Verdict) -> None:
    shown = leaning(snapshot(), 0.0)
    one_sided = replace(shown, answers=Answers.of(shown.answers.pairs, [verdict] * 40))
    agenda = Agenda(Pairs.from_list(sorted(unknown(shown))))
    picked = EVERY["mgue"].pick(one_sided, agenda, len(agenda.pairs), seed(0))
    assert list(picked) == list(steering.steered(one_sided, agenda.pairs, 0.5))
    s = pairwise(shown.vectors, picked)
    half = len(s) // 2
    asked_first = s[:half].mean() - s[half:].mean()
    assert asked_first < 0 if verdict == SIMILAR else asked_first > 0
    balanced = EVERY["mgue"].pick(shown, agenda, len(agenda.pairs), seed(0))
    assert list(balanced) == list(agenda.pairs)
    assert list(listed(one_sided, agenda, 10, seed(0))) == list(agenda.pairs[:10])
