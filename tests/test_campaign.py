"""The person's turn: which pair comes next, what an answer and an undo do, how far the campaign is."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.archive import Archive, open_archive
from anneal.campaign import Campaign, Plan, Standing, label_pairs
from anneal.errors import AnnealError, ArchiveError, CampaignError, UsageError
from anneal.pairs import Pairs, Verdict
from anneal.store import Store

SIMILAR, DISSIMILAR, UNSURE = Verdict
PLAN = Plan(px=32)


@pytest.fixture
def archive(drawn: Path, cache: Path) -> Archive:
    return open_archive(drawn, 32, cache)


Closed = Callable[[Campaign], Campaign]


@pytest.fixture
def closed() -> Iterator[Closed]:
    """Whatever is passed through here is closed when the test is over."""
    with ExitStack() as stack:

        def close_later(campaign: Campaign) -> Campaign:
            stack.callback(campaign.store.close)
            return campaign

        yield close_later


@pytest.fixture
def campaign(tmp_path: Path, archive: Archive, closed: Closed) -> Campaign:
    return closed(Campaign.create(tmp_path / "campaign", archive, PLAN, np.arange(len(archive))))


def ask(campaign: Campaign, *pairs: tuple[int, int], round: int = 0) -> None:
    campaign.store.queue(round, Pairs.of(*np.array(pairs).T), "mgue")


def events(campaign: Campaign) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(campaign.store.path)) as db:
        return db.execute(
            "SELECT a, b, verdict, annotator, strategy, round FROM answers ORDER BY id"
        ).fetchall()


def evidence(campaign: Campaign, upto: int | None = None) -> list[tuple[int, int, int]]:
    found = campaign.evidence(upto)
    return [(a, b, int(v)) for (a, b), v in zip(found.pairs, found.verdicts, strict=True)]


def planned(campaign: Campaign, folder: Path, **changes: Any) -> Campaign:
    """Another campaign on the same archive with another plan."""
    return Campaign.create(folder, campaign.archive(), replace(campaign.plan, **changes), campaign.images)


# -- the next pair ---------------------------------------------------------------------------------


def test_questions_come_in_the_order_of_the_queue_until_there_are_none(campaign: Campaign) -> None:
    assert campaign.next_pair() is None
    asked = [(7, 8), (0, 1), (30, 99)]
    ask(campaign, *asked)
    for pair in asked:
        assert campaign.next_pair() == pair
        assert campaign.next_pair() == pair  # asking changes nothing
        campaign.answer(*pair, DISSIMILAR)
    assert campaign.next_pair() is None
    ask(campaign, (7, 9), round=1)
    assert campaign.next_pair() == (7, 9)


def test_what_the_answers_imply_is_not_asked(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (1, 2), (0, 2), (2, 3), (0, 3), (3, 4), (1, 4))
    for pair, verdict in (((0, 1), SIMILAR), ((1, 2), SIMILAR), ((2, 3), DISSIMILAR), ((3, 4), DISSIMILAR)):
        assert campaign.next_pair() == pair
        campaign.answer(*pair, verdict)
    assert campaign.next_pair() == (1, 4)  # dissimilar + dissimilar implies nothing


@pytest.mark.parametrize(
    ("closure", "first"), [("none", (0, 2)), ("single", (0, 3)), ("full", (8, 9))]
)  # of two steps apart, three steps apart, and unrelated
def test_the_plan_says_how_far_implication_goes(
    campaign: Campaign, tmp_path: Path, closed: Closed, closure: str, first: tuple[int, int]
) -> None:
    other = closed(planned(campaign, tmp_path / closure, closure=closure))
    other.answer_all(Pairs.of([0, 1, 2], [1, 2, 3]), [SIMILAR] * 3)
    ask(other, (0, 1), (0, 2), (0, 3), (8, 9))
    assert other.next_pair() == first


def test_an_unsure_pair_is_not_asked_again_and_implies_nothing(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (1, 2), (0, 2))
    campaign.answer(0, 1, UNSURE)
    campaign.answer(1, 2, SIMILAR)
    assert campaign.next_pair() == (0, 2)
    campaign.answer(0, 2, UNSURE)
    assert campaign.next_pair() is None


def test_a_pair_two_annotators_disagree_on_is_not_asked_again(campaign: Campaign) -> None:
    ask(campaign, (0, 1), (2, 3))
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, DISSIMILAR, "bob")
    assert campaign.next_pair() == (2, 3)


def naively_known(n: int, answers: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """The closure, a step at a time until nothing is new."""
    known = {frozenset(pair): verdict for pair, verdict in answers.items()}
    while True:
        new = {
            frozenset((a, c)): max(one, other)
            for b in range(n)
            for a, c in combinations(set(range(n)) - {b}, 2)
            if (one := known.get(frozenset((a, b)), 0)) and (other := known.get(frozenset((b, c)), 0))
            if SIMILAR in (one, other) and frozenset((a, c)) not in known
        }
        if not new:
            return {(min(pair), max(pair)): verdict for pair, verdict in known.items()}
        known |= new


def test_a_person_who_knows_the_classes_is_asked_exactly_what_does_not_follow(
    campaign: Campaign, rng: np.random.Generator
) -> None:
    classes = [0, 1, 2, 0, 1, 0, 0, 2, 1]
    queue = rng.permutation(np.array(list(combinations(range(9), 2))))
    ask(campaign, *queue)
    answered: dict[tuple[int, int], int] = {}
    while (pair := campaign.next_pair()) is not None:
        known = naively_known(9, answered)
        assert pair == next((a, b) for a, b in queue.tolist() if (a, b) not in known)
        answered[pair] = SIMILAR if classes[pair[0]] == classes[pair[1]] else DISSIMILAR
        campaign.answer(*pair, Verdict(answered[pair]))
    every = Pairs.of(*queue.T)
    truth = [SIMILAR if classes[a] == classes[b] else DISSIMILAR for a, b in every]
    assert campaign.closure().relations.of(every).tolist() == truth
    assert len(answered) < len(queue)


# -- answer, correct, undo -------------------------------------------------------------------------


def test_an_answer_is_kept_with_its_annotator_and_its_questions_round_and_strategy(
    campaign: Campaign,
) -> None:
    ask(campaign, (2, 5), round=3)
    campaign.answer(5, 2, SIMILAR, "ann")
    campaign.answer(7, 9, UNSURE)
    assert events(campaign) == [(2, 5, SIMILAR, "ann", "mgue", 3), (7, 9, UNSURE, "me", "mgue", 3)]


def test_many_answers_are_kept_in_one_step_or_not_at_all(campaign: Campaign) -> None:
    campaign.answer_all(Pairs.of([0, 3], [1, 2]), [SIMILAR, DISSIMILAR], "oracle")
    assert evidence(campaign) == [(0, 1, SIMILAR), (2, 3, DISSIMILAR)]
    with pytest.raises(ValueError, match="shorter"):
        campaign.answer_all(Pairs.of([4, 6], [5, 7]), [SIMILAR])
    assert campaign.store.events() == 2


def test_a_correction_replaces_the_answer_and_its_consequences(campaign: Campaign) -> None:
    ask(campaign, (0, 2))
    campaign.answer_all(Pairs.of([0, 1], [1, 2]), [SIMILAR, SIMILAR])
    assert campaign.next_pair() is None
    campaign.answer(1, 2, UNSURE)
    assert campaign.next_pair() == (0, 2)
    assert evidence(campaign) == [(0, 1, SIMILAR), (1, 2, UNSURE)]
    assert campaign.store.events() == 3


def test_undo_takes_back_one_answer_after_another_and_its_consequences(campaign: Campaign) -> None:
    asked = [(0, 1), (1, 2), (0, 2), (3, 4)]
    ask(campaign, *asked)
    for pair in ((0, 1), (1, 2), (3, 4)):
        campaign.answer(*pair, SIMILAR)
    assert campaign.next_pair() is None
    for pair in ((3, 4), (1, 2), (0, 1)):
        assert campaign.undo() == pair
        assert campaign.next_pair() == pair  # to be asked again
    assert evidence(campaign) == []
    assert campaign.store.events() == 6
    assert campaign.undo() is None
    assert campaign.store.events() == 6


def test_undo_takes_back_nobody_elses_answer(campaign: Campaign) -> None:
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, SIMILAR, "bob")
    campaign.answer(2, 3, SIMILAR, "bob")
    assert campaign.undo("ann") == (0, 1)
    assert campaign.undo("ann") is None
    assert evidence(campaign) == [(0, 1, SIMILAR), (2, 3, SIMILAR)]


@pytest.mark.parametrize(
    ("a", "b", "verdict"), [(0, 120, 1), (-1, 3, 1), (3, 3, 1), (0, 1, 4), (0, 1, -1)]
)  # of 120 images and three verdicts
def test_an_answer_on_what_is_no_pair_or_with_no_verdict_is_refused_and_not_kept(
    campaign: Campaign, a: int, b: int, verdict: int
) -> None:
    ask(campaign, (0, 1))
    with pytest.raises((AnnealError, ValueError)):
        campaign.answer_all(Pairs.of([5, a], [6, b]), [SIMILAR, verdict])
    assert campaign.store.events() == 0
    assert campaign.next_pair() == (0, 1)


# -- standing --------------------------------------------------------------------------------------


def test_a_new_campaign_stands_at_nothing(campaign: Campaign) -> None:
    zeros = dict.fromkeys(asdict(campaign.standing()), 0)
    assert asdict(campaign.standing()) == {**zeros, "images": 120}


def test_standing_counts_answers_what_they_imply_and_what_is_left(campaign: Campaign) -> None:
    ask(campaign, (0, 2), (1, 3), (6, 7), (8, 9), (0, 4))
    for a, b, verdict in (
        (0, 1, SIMILAR),
        (1, 2, SIMILAR),
        (2, 3, DISSIMILAR),
        (4, 5, SIMILAR),
        (6, 7, UNSURE),
    ):
        campaign.answer(a, b, verdict)
    expected = Standing(
        images=120,
        answers=5,
        similar=3,
        dissimilar=1,
        unsure=1,
        labels=0,
        implied=3,  # 0 and 2 are similar, 3 is dissimilar to 0 and 1
        contradictions=0,
        rounds=0,
        queued=2,  # 8, 9 and 0, 4
    )
    assert campaign.standing() == expected
    campaign.answer(0, 2, DISSIMILAR)  # against 0, 1, 2; what is contradicted implies nothing
    contradicted = replace(expected, answers=6, dissimilar=2, implied=0, contradictions=1, queued=3)
    assert campaign.standing() == contradicted
    campaign.undo()
    assert campaign.standing() == expected
    campaign.store.finish_round(0, {}, Pairs.of([0, 8], [3, 9]), "mgue")
    assert campaign.standing() == replace(expected, rounds=1, queued=1)


def test_what_two_annotators_agree_on_is_known_once(campaign: Campaign) -> None:
    for who in ("ann", "bob"):
        campaign.answer(0, 1, SIMILAR, who)
    campaign.answer(1, 2, SIMILAR, "ann")
    standing = campaign.standing()
    assert (standing.answers, standing.similar, standing.contradictions) == (3, 3, 0)
    assert standing.implied == 1  # 0, 2


def test_a_disagreement_hides_nothing_implied_elsewhere(campaign: Campaign) -> None:
    campaign.answer(0, 1, SIMILAR, "ann")
    campaign.answer(0, 1, DISSIMILAR, "bob")
    campaign.answer(5, 6, SIMILAR)
    campaign.answer(6, 7, SIMILAR)
    standing = campaign.standing()
    assert (standing.similar, standing.dissimilar, standing.contradictions) == (3, 1, 1)
    assert standing.implied == 1  # 5, 7


def test_pairs_that_labels_stand_for_are_implied(campaign: Campaign) -> None:
    labels = [(0, "x"), (1, "x"), (2, "x"), (3, "y"), (4, "y")]
    campaign.store.add_labels(labels, annotator="me", strategy="cal", round=0)
    standing = campaign.standing()
    assert (standing.labels, standing.answers, standing.implied) == (5, 0, 10)
    ask(campaign, (0, 4), (1, 2), (4, 5))
    assert campaign.next_pair() == (4, 5)


# -- labels ----------------------------------------------------------------------------------------

SIZES = {"forest": 9, "river": 5, "beach": 3, "runway": 1}
LABELS = {
    3 * place + 2: name
    for place, name in enumerate(
        np.random.default_rng(3)
        .permutation([name for name, size in SIZES.items() for _ in range(size)])
        .tolist()
    )
}


def test_a_labelled_image_gets_four_partners_of_its_class_and_four_of_others() -> None:
    answers = label_pairs(LABELS, np.random.default_rng(0))
    rows = list(zip(answers.pairs, answers.verdicts.tolist(), strict=True))
    for image in sorted(LABELS):
        for verdict, there in (
            (SIMILAR, SIZES[LABELS[image]] - 1),
            (DISSIMILAR, len(LABELS) - SIZES[LABELS[image]]),
        ):
            own, rows = rows[: min(4, there)], rows[min(4, there) :]
            partners = {a + b - image for (a, b), _ in own if image in (a, b)}
            assert len(partners) == min(4, there)  # each has the image, and none comes twice
            assert {given for _, given in own} <= {verdict}
            assert {LABELS[i] == LABELS[image] for i in partners} <= {verdict == SIMILAR}
    assert rows == []


def test_partners_are_drawn_by_the_seed_alone() -> None:
    def pairs(seed: int, labels: dict[int, str] = LABELS) -> list[tuple[int, int]]:
        return list(label_pairs(labels, np.random.default_rng(seed)).pairs)

    assert pairs(1) == pairs(1, dict(reversed(LABELS.items())))
    assert pairs(1) != pairs(2)


@pytest.mark.parametrize("labels", [{}, {5: "alone"}])
def test_labels_without_a_partner_stand_for_no_pair(labels: dict[int, str]) -> None:
    assert len(label_pairs(labels, np.random.default_rng(0))) == 0


def test_evidence_is_the_answers_and_then_the_labels_up_to_a_round(campaign: Campaign) -> None:
    campaign.answer(7, 8, SIMILAR)
    campaign.store.add_labels([(0, "x"), (1, "x")], annotator="me", strategy="cal", round=1)
    ask(campaign, (0, 1), round=2)
    campaign.answer(5, 6, UNSURE)
    labelled = [(0, 1, SIMILAR)] * 2  # each the other's partner
    assert evidence(campaign, 0) == [(7, 8, SIMILAR)]
    assert evidence(campaign, 1) == [(7, 8, SIMILAR), *labelled]
    assert evidence(campaign) == evidence(campaign, 2) == [(7, 8, SIMILAR), (5, 6, UNSURE), *labelled]


def test_evidence_of_labels_is_drawn_by_the_plans_seed(
    campaign: Campaign, tmp_path: Path, closed: Closed
) -> None:
    others = [closed(planned(campaign, tmp_path / f"{seed}", seed=seed)) for seed in (0, 1)]
    for each in (campaign, *others):
        each.store.add_labels(LABELS.items(), annotator="me", strategy="cal", round=0)
    assert evidence(campaign) == evidence(campaign) == evidence(others[0])
    assert evidence(campaign) != evidence(others[1])


# -- making, opening, moving -----------------------------------------------------------------------


def test_a_campaign_is_found_again_as_it_was_made(tmp_path: Path, archive: Archive, closed: Closed) -> None:
    plan = Plan(px=32, depth="last", per_round=7, closure="single", lam=2.5, loss="ntxent", seed=9)
    made = closed(Campaign.create(tmp_path / "new" / "campaign", archive, plan, np.array([3, 5, 8])))
    ask(made, (3, 5))
    made.answer(3, 5, SIMILAR)
    opened = closed(Campaign.open(tmp_path / "new" / "campaign"))
    assert (opened.plan, opened.images.tolist(), opened.size) == (plan, [3, 5, 8], 120)
    assert evidence(opened) == [(3, 5, SIMILAR)]
    assert opened.archive().paths == archive.paths
    np.testing.assert_array_equal(opened.archive().pixels, archive.pixels)


def test_a_second_campaign_in_one_folder_is_refused_and_the_first_stays(
    campaign: Campaign, archive: Archive, closed: Closed
) -> None:
    campaign.answer(0, 1, SIMILAR)
    with pytest.raises(UsageError, match=r"campaign already holds a campaign: .*--campaign"):
        Campaign.create(campaign.folder, archive, Plan(px=32, seed=5), np.arange(3))
    opened = closed(Campaign.open(campaign.folder))
    assert (opened.plan, len(opened.images), evidence(opened)) == (PLAN, 120, [(0, 1, SIMILAR)])


def test_where_there_is_no_campaign_init_is_named(tmp_path: Path) -> None:
    with pytest.raises(CampaignError, match="anneal init"):
        Campaign.open(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_a_campaign_whose_making_was_cut_short_can_be_made_again(
    tmp_path: Path, archive: Archive, closed: Closed
) -> None:
    Store(tmp_path / "campaign.sqlite", create=True).close()
    with pytest.raises(CampaignError, match="never finished being made: run init again"):
        Campaign.open(tmp_path)
    closed(Campaign.create(tmp_path, archive, PLAN, np.arange(3)))
    assert closed(Campaign.open(tmp_path)).plan == PLAN


def test_a_plan_written_by_a_later_version_is_read_as_far_as_it_is_known(
    campaign: Campaign, closed: Closed
) -> None:
    campaign.store.set(plan={**asdict(PLAN), "per_round": 5, "unheard_of": True})
    assert closed(Campaign.open(campaign.folder)).plan == replace(PLAN, per_round=5)


def own_archive(folder: Path) -> Campaign:
    """A campaign that keeps its pixels in its own folder, as init makes it."""
    archive = open_archive(folder / "images", 32, folder / "campaign" / "cache")
    return Campaign.create(folder / "campaign", archive, PLAN, np.arange(len(archive)))


def test_a_campaign_may_be_moved_and_its_images_deleted(tmp_path: Path, drawn: Path, closed: Closed) -> None:
    shutil.copytree(drawn / "river", tmp_path / "images" / "river")
    campaign = closed(own_archive(tmp_path))
    pixels, paths = campaign.archive().pixels.copy(), campaign.archive().paths
    campaign.answer(0, 1, SIMILAR)
    campaign.store.close()
    (tmp_path / "else").mkdir()
    shutil.move(tmp_path / "campaign", tmp_path / "else" / "where")
    (tmp_path / "images" / "river" / "river_003.jpg").unlink()
    moved = closed(Campaign.open(tmp_path / "else" / "where"))
    np.testing.assert_array_equal(moved.archive().pixels, pixels)
    assert moved.archive().paths == paths
    assert moved.archive().missing() == ["river/river_003.jpg"]
    assert evidence(moved) == [(0, 1, SIMILAR)]
    shutil.rmtree(tmp_path / "images")
    np.testing.assert_array_equal(moved.archive().pixels, pixels)
    assert moved.archive().missing() == list(paths)


def test_lost_pixels_are_an_archive_error(tmp_path: Path, drawn: Path, closed: Closed) -> None:
    shutil.copytree(drawn / "river", tmp_path / "images" / "river")
    campaign = closed(own_archive(tmp_path))
    shutil.rmtree(tmp_path / "campaign" / "cache")
    with pytest.raises(ArchiveError, match="are gone or incomplete"):
        campaign.archive()


def test_vectors_are_the_newest_rounds(campaign: Campaign) -> None:
    def keep(folder: Path, value: float) -> None:
        folder.mkdir(parents=True)
        np.save(folder / "vectors.npy", np.full((120, 2), value))

    with pytest.raises(CampaignError, match="has lost its vectors"):
        campaign.vectors()
    keep(campaign.folder / "rounds" / "frozen", 0.5)
    assert np.unique(campaign.vectors()).tolist() == [0.5]
    for number in range(2):
        keep(campaign.round_folder(number), number)
        campaign.store.finish_round(number, {}, Pairs.none(), "mgue")
        assert np.unique(campaign.vectors()).tolist() == [number]
    campaign.store.finish_round(2, {}, Pairs.none(), "mgue")
    with pytest.raises(CampaignError, match=r"0002 has lost its vectors: run anneal round again"):
        campaign.vectors()


# -- the plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "changes"),
    [
        ("--closure", {"closure": "transitive"}),
        ("--depth", {"depth": "deep"}),
        ("--diversity", {"diversity": "k-means"}),
        ("--loss", {"loss": "triplet"}),
        ("--lambda", {"lam": float("nan")}),
        ("--lambda", {"lam": float("inf")}),
        ("--lambda", {"lam": -float("inf")}),
        ("--per-round", {"per_round": 0}),
        ("--per-round", {"per_round": -5}),
        ("--seed", {"seed": -1}),
    ],
)
def test_a_plan_that_cannot_be_followed_names_the_option(option: str, changes: dict[str, Any]) -> None:
    (value,) = changes.values()
    shown = repr(value) if isinstance(value, str) else str(value)
    with pytest.raises(UsageError) as refused:
        Plan(**changes)
    assert str(refused.value).startswith(f"{option} {shown}")
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("closure", ("none", "single", "full")),
        ("depth", ("head", "last", "full")),
        ("diversity", ("kmeans", "kmeans-sum", "kmeans-product", "none")),
        ("loss", ("mix", "contrastive", "ntxent")),
        ("space", ("search", "backbone", "head")),
        ("recipe", ("anneal", "paper")),
        ("restart", ("cold", "warm")),
    ],
)
def test_a_refused_name_comes_with_those_to_choose_from(option: str, choices: tuple[str, ...]) -> None:
    for choice in choices:
        assert asdict(Plan(**{option: choice}))[option] == choice  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"choose one of {', '.join(choices)}"):
        Plan(**{option: ""})  # type: ignore[arg-type]


def test_a_plans_randomness_depends_on_seed_and_purpose_alone() -> None:
    def draw(seed: int, *purpose: int) -> int:
        return int(Plan(seed=seed).rng(*purpose).integers(2**62))

    purposes = [(0,), (1, 0), (1, 1), (2, 0), (2, 1), (3,)]  # those in use
    drawn = [draw(seed, *purpose) for seed in (0, 1) for purpose in purposes]
    assert len(set(drawn)) == len(drawn)
    assert [draw(seed, *purpose) for seed in (0, 1) for purpose in purposes] == drawn
    plan = Plan(seed=1, per_round=3, strategy="random")  # whatever else it says, and was drawn before
    plan.rng(2, 1).random(100)
    assert int(plan.rng(2, 1).integers(2**62)) == draw(1, 2, 1)


def test_the_persons_turn_never_loads_torch() -> None:
    script = "import sys, anneal.campaign; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"torch", "transformers", "sklearn", "matplotlib", "rasterio"} & set(loaded.split())
