"""A campaign with an oracle: its curve, how it goes on after a stop, that the learner sees no class."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign import heldout, turn
from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import FROZEN
from anneal.campaign.store import MACHINE, Purpose, Row
from anneal.errors import CampaignError, UsageError
from anneal.experiments import play as module
from anneal.experiments.oracle import NAME, Oracle, score, split_of
from anneal.experiments.play import ABLATIONS, Player, play
from anneal.experiments.runner import COLUMNS
from anneal.method import estimate
from anneal.method.mining import new_salt
from anneal.method.relations import full
from anneal.method.snapshot import Agenda, Snapshot
from anneal.network.backbones import Backbone
from anneal.pairs import Answers, Pairs, Verdict
from anneal.settings import Settings

SETTINGS = Settings(px=32, per_round=12)
LABEL = 3  # bits: the archive has eight classes
PAIR_STRATEGIES = ("place", "mgue", "bcgue", "random")

pytestmark = pytest.mark.usefixtures("few_steps")


def player_of(strategy: str, rounds: int = 1, **changed: Any) -> Player:
    """``changed`` are settings, or fields of Player."""
    own = {name: changed.pop(name) for name in ("start", "noise", "ablation") if name in changed}
    return Player(replace(SETTINGS, strategy=strategy, **changed), rounds, **own)


@dataclass(frozen=True)
class Game:
    """Plays on one archive; the oracle may know other classes than the archive's."""

    archive: Archive
    backbone: Backbone
    oracle: Oracle

    def __call__(self, folder: Path, player: Player, pinned: tuple[int, ...] = ()) -> list[dict[str, Any]]:
        """The curve."""
        seed = player.settings.seed
        oracle = replace(self.oracle, noise=player.noise, seed=seed)
        split = split_of(self.archive, seed)
        with closing(player.open(folder, self.archive, split, self.backbone)) as campaign:
            records = list(play(campaign, player, oracle, split, self.backbone, pinned=pinned))
        return [record.curve or {} for record in records]


@pytest.fixture(scope="session")
def game(small_archive: Archive, shrunk: Backbone) -> Game:
    return Game(small_archive, shrunk, Oracle.of(small_archive))


def rows_of(folder: Path) -> list[Row]:
    """Every event of the campaign."""
    with closing(Campaign.open(folder, player_of("random").strategy)) as campaign:
        return campaign.log().rows


def said(folder: Path) -> list[tuple[int, int, int, int, str, str | None]]:
    return [(*row.pair, row.verdict, row.round, row.purpose, row.entered) for row in rows_of(folder)]


# -- the curve ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", PAIR_STRATEGIES)
def test_every_answer_costs_a_bit_and_every_class_label_its_share(
    strategy: str, game: Game, tmp_path: Path
) -> None:
    curve = game(tmp_path, player_of(strategy, 2, start="labelled:12"))
    assert [row["round"] for row in curve] == [0, 1, 2]
    assert [row["answers"] for row in curve] == [12, 24, 36]
    assert [row["bits"] for row in curve] == [12 * LABEL + given for given in (0, 12, 24)]
    for row in curve:
        assert {*row, "player", "trial"} == set(COLUMNS)
        assert row["strategy"] == strategy
        assert 0 < row["map5_all"] <= row["map5_min"] <= 1
        assert 0 <= row["similar_share"] <= 1
    assert rows_of(tmp_path)[0].round == 1, "in the first round there are labels only"


@pytest.mark.parametrize("name", ["cal", "cal-metric", "typiclust", "coreset"])
def test_labellers_get_as_many_classes_as_a_rounds_bits_pay_for(
    name: str, game: Game, tmp_path: Path
) -> None:
    curve = game(tmp_path / "cold", player_of(name, 2))
    assert [row["answers"] for row in curve] == [4, 8, 12]
    assert [row["bits"] for row in curve] == [12, 24, 36]
    labelled = game(tmp_path / "labelled", player_of(name, 1, start="labelled:12"))
    assert [row["answers"] for row in labelled] == [12, 16]
    assert labelled[1]["similar_share"] == "", "no pair was judged in this round"
    assert rows_of(tmp_path / "cold") == []


def test_the_seed_determines_the_curve(game: Game, tmp_path: Path) -> None:
    one = game(tmp_path / "one", player_of("mgue"))
    again = game(tmp_path / "again", player_of("mgue"))
    other = game(tmp_path / "other", player_of("mgue", seed=1))
    assert one == again
    assert said(tmp_path / "one") == said(tmp_path / "again")
    assert one != other


def test_a_warm_round_trains_on_from_the_last(game: Game, tmp_path: Path) -> None:
    warm = game(tmp_path / "warm", player_of("mgue", restart="warm"))
    cold = game(tmp_path / "cold", player_of("mgue", restart="cold"))
    assert warm[0] == cold[0]
    assert warm[1]["threshold"] != cold[1]["threshold"]


@pytest.mark.parametrize("strategy", ["place", "mgue", "bcgue"])
def test_an_ablation_changes_what_is_planned(strategy: str, game: Game, tmp_path: Path) -> None:
    large = [name for name in ABLATIONS if name.startswith("budget")]  # change nothing in a small archive …
    early = ("no-typical", "own-doubt")  # … or when half of it is known
    rest = [name for name in ABLATIONS if name not in (*large, *early)]
    of_mgue = {name for name in rest if name.startswith("pair-vector")}
    of_bcgue = {name for name in rest if name.startswith("bcgue")}
    own = {"mgue": of_mgue, "bcgue": of_bcgue, "place": set(rest) - of_mgue - of_bcgue}
    names = sorted(own[strategy])

    def planned(name: str, per_round: int) -> Agenda:
        folder = tmp_path / f"{name}-{per_round}" / "c"
        game(folder, player_of(strategy, 0, ablation=name, per_round=per_round, heldout=0.0))
        with closing(Campaign.open(folder)) as campaign:
            return campaign.rounds.agenda()

    def same(one: Agenda, other: Agenda) -> bool:
        return list(one.pairs) == list(other.pairs) and one.images.tolist() == other.images.tolist()

    whole = planned("", 60)
    agendas = {name: planned(name, 60) for name in names}
    assert [name for name, agenda in agendas.items() if same(agenda, whole)] == []
    if strategy == "place":
        assert len(whole.pairs) > 0
        assert len(agendas["no-joins"].pairs) == 0
        assert same(planned("own-doubt", 60), whole)
        assert not same(planned("own-doubt", 8), planned("", 8))


def test_an_ablation_with_a_budget_mines_no_more_pairs_than_that() -> None:
    vectors = np.random.default_rng(0).normal(size=(3000, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    answers = Answers.of(Pairs.of([0, 1], [1, 2]), [Verdict.SIMILAR, Verdict.DISSIMILAR])
    shown = Snapshot(vectors, np.arange(3000), full(3000, answers).relations, answers, np.array([-1, -1]))
    settings = Settings(strategy="mgue", share=0.0)
    planned = {name: ABLATIONS[name](settings) for name in ("budget-3200000", "budget-800000")}
    pairs = {name: set(plan(shown, 300, np.random.default_rng(1)).pairs) for name, plan in planned.items()}
    anchors = anchors_of(266)  # 800 000 pairs of 3000 images
    assert all(set(pair) & anchors for pair in pairs["budget-800000"])
    assert not all(set(pair) & anchors for pair in pairs["budget-3200000"])


def anchors_of(number: int) -> set[int]:
    """Those that the seed 1 draws, after the salt."""
    rng = np.random.default_rng(1)
    new_salt(rng)
    return set(rng.choice(np.arange(3000), number, replace=False).tolist())


# -- what the oracle says ------------------------------------------------------------------------------


def test_only_training_images_are_asked_about_and_every_answer_is_true(game: Game, tmp_path: Path) -> None:
    train = set(split_of(game.archive, 0).train.tolist())
    for strategy in PAIR_STRATEGIES:
        game(tmp_path / strategy, player_of(strategy, 2, recheck=0.0))
        given = [row for row in rows_of(tmp_path / strategy) if row.entered is None]
        assert len(given) == 36 == len({row.pair for row in given})
        for row in given:
            assert {row.a, row.b} <= train
            assert row.verdict == game.oracle.verdict(row.pair, 0)
            assert row.annotator == NAME


@pytest.mark.parametrize("strategy", ["place", "mgue"])
def test_a_noisy_oracle_is_asked_again_and_every_answer_is_paid_for(
    strategy: str, game: Game, tmp_path: Path
) -> None:
    curve = game(tmp_path, player_of(strategy, 0, noise=0.2, per_round=120, recheck=0.3))
    rows = rows_of(tmp_path)
    given = [row for row in rows if row.verdict and row.entered is None]
    wrong = [row.verdict != game.oracle.verdict(row.pair, 0) for row in given]
    assert curve[0]["bits"] == len(given) == 120
    assert 0.1 < np.mean(wrong) < 0.3
    assert any(row.verdict == 0 and row.entered == MACHINE for row in rows), "some answers were doubted"
    assert any(row.purpose == Purpose.AGAIN and row.verdict for row in given), "and asked again"


@pytest.fixture(scope="session")
def scrambled(drawn: Path, small_archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The same images in the same order, each with the class of another."""
    folder = tmp_path_factory.mktemp("scrambled")
    labels = np.random.default_rng(3).permutation(small_archive.labels).tolist()
    lines = [f"{drawn / path},{label}" for path, label in zip(small_archive.paths, labels, strict=True)]
    (folder / "manifest.csv").write_text("path,class\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return open_archive(folder / "manifest.csv", SETTINGS.px, folder / "cache")


@pytest.mark.parametrize("strategy", ["place", "mgue", "bcgue", "cal"])
def test_the_learner_sees_no_class_but_what_the_oracle_says(
    strategy: str, game: Game, scrambled: Archive, tmp_path: Path
) -> None:
    """The archive on disk has other classes. The oracle and the score have the true ones: the curve stays."""
    blind = replace(game, archive=scrambled)
    assert blind.archive.labels != game.archive.labels
    assert np.array_equal(blind.archive.pixels, game.archive.pixels)
    player = player_of(strategy, 2)
    assert blind(tmp_path / "blind", player) == game(tmp_path / "seen", player)
    assert said(tmp_path / "blind") == said(tmp_path / "seen")
    with closing(Campaign.open(tmp_path / "blind", player.strategy)) as campaign:
        labels = campaign.store.labels()
    assert all(game.archive.labels[i] == label for i, label in labels.items())
    assert bool(labels) == (strategy == "cal")


# -- the product's own questions -----------------------------------------------------------------------


def test_held_out_questions_and_leases_run_in_a_simulation(game: Game, tmp_path: Path) -> None:
    curve = game(tmp_path, player_of("place", 2, heldout=0.2, per_round=20))
    rows = rows_of(tmp_path)
    measuring = [row for row in rows if row.purpose == Purpose.HELD_OUT]
    assert 8 <= len(measuring) <= 12, "a fifth of 60"
    assert [row["bits"] for row in curve] == [20, 40, 60], "they are paid for"
    with closing(Campaign.open(tmp_path)) as campaign:
        drawn = set(campaign.rounds.heldout_pairs())
        assert {row.pair for row in measuring} <= drawn
        learnt = {row.pair for row in campaign.evidence().rows}
        assert not learnt & {row.pair for row in measuring}, "nothing is learnt from them"
        models = {model for model, _, _ in campaign.store.ranks()}
        assert models == {FROZEN, 0, 1, 2}, "they are ranked in every model"
        assert [lease.holder for lease in campaign.store.leases()] == [NAME]


def test_heldout_0_turns_them_off(game: Game, tmp_path: Path) -> None:
    curve = game(tmp_path, player_of("place", 1, heldout=0.0))
    assert curve[-1]["bits"] == 24
    assert {row.purpose for row in rows_of(tmp_path)} <= {Purpose.CHOSEN, Purpose.AGAIN}
    with closing(Campaign.open(tmp_path)) as campaign:
        assert campaign.store.heldout() == []
        assert campaign.store.ranks() == {}


def test_the_guard_runs_in_a_simulation(game: Game, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that the held-out answers call worse does not serve, and is not scored."""
    monkeypatch.setattr(estimate, "worse", lambda similar, new, old: True)
    (row,) = game(tmp_path, player_of("mgue", 0))
    split = split_of(game.archive, 0)
    with closing(Campaign.open(tmp_path)) as campaign:
        assert campaign.rounds.serving == FROZEN
        frozen = score(campaign.rounds.vectors(FROZEN), split, game.oracle.classes)
        trained = score(campaign.rounds.vectors(0), split, game.oracle.classes)
    assert {name: row[name] for name in frozen} == frozen
    assert trained != frozen


def test_the_model_that_served_after_a_pinned_round_is_kept(
    game: Game, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old rounds are removed, but not the one that a figure shows, nor the model that served then."""
    served = {0: 0, 1: 0, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}
    monkeypatch.setattr(heldout, "choose_serving", lambda campaign, number, drawn: served[number])
    game(tmp_path, player_of("random", 6, heldout=0.0, per_round=3), pinned=(1,))
    kept = sorted(folder.name for folder in (tmp_path / "rounds").iterdir())
    assert kept == ["0000", "0001", "0004", "0005", "0006", "frozen"]


# -- stopped and gone on -------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["place", "mgue", "cal"])
def test_a_longer_run_goes_on_where_the_shorter_one_ended(strategy: str, game: Game, tmp_path: Path) -> None:
    longer = player_of(strategy, 3)
    whole = game(tmp_path / "whole", longer)
    shorter = game(tmp_path / "parts", replace(longer, rounds=1))
    assert shorter == whole[:2]
    assert game(tmp_path / "parts", longer) == whole
    assert said(tmp_path / "parts") == said(tmp_path / "whole")
    assert game(tmp_path / "parts", replace(longer, rounds=2)) == whole[:3], "a shorter one reads its part"


def interrupt(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, calls: tuple[int, ...]) -> None:
    """Ctrl-c at these calls of a function."""
    real: Callable[..., Any] = getattr(owner, name)
    count = 0

    def stopping(*args: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count in calls:
            raise KeyboardInterrupt
        return real(*args, **options)

    monkeypatch.setattr(owner, name, stopping)


def play_until_done(game: Game, folder: Path, player: Player) -> tuple[list[dict[str, Any]], int]:
    """The curve, and how often it was stopped."""
    stops = 0
    while True:
        try:
            return game(folder, player), stops
        except KeyboardInterrupt:
            stops += 1


@pytest.mark.parametrize("strategy", ["place", "mgue"])
def test_a_noisy_run_that_is_stopped_at_some_answers_goes_on_as_if_it_had_not_been(
    strategy: str, game: Game, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is leased, or an answer is withdrawn and not asked again yet, when the run stops."""
    player = player_of(strategy, 1, noise=0.2, per_round=45, recheck=0.3, heldout=0.2)
    whole = game(tmp_path / "whole", player)
    assert any(entered == MACHINE for *_, entered in said(tmp_path / "whole"))
    interrupt(monkeypatch, Campaign, "answer", (1, 20, 38, 39, 42, 47, 60, 81, 97))
    curve, stops = play_until_done(game, tmp_path / "stopped", player)
    assert stops == 9
    assert curve == whole
    assert said(tmp_path / "stopped") == said(tmp_path / "whole")


@pytest.mark.parametrize("strategy", ["mgue", "cal"])
@pytest.mark.parametrize(("owner", "name"), [(turn, "fit"), (module, "score"), (module, "_teach")])
def test_a_round_that_is_stopped_while_the_machine_learns_is_learnt_again(
    strategy: str, owner: Any, name: str, game: Game, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    player = player_of(strategy, 2, start="labelled:12")
    whole = game(tmp_path / "whole", player)
    interrupt(monkeypatch, owner, name, (1, 3))
    curve, stops = play_until_done(game, tmp_path / "stopped", player)
    assert stops == 2
    assert curve == whole
    assert said(tmp_path / "stopped") == said(tmp_path / "whole"), "no answer is given twice"


def test_too_few_pairs_end_the_run_and_keep_its_rounds(game: Game, tmp_path: Path) -> None:
    splits = tuple(["train"] * 12 + ["val", "test"] * 54)  # twelve images have 66 pairs
    few = replace(game, archive=replace(game.archive, splits=splits))
    player = player_of("mgue", 5, per_round=30, recheck=0.0, heldout=0.0, closure="none")
    with pytest.raises(UsageError, match=r"Round 2 of mgue .* 30 pairs but only 6 were still unknown.*kept"):
        few(tmp_path, player)
    with closing(Campaign.open(tmp_path)) as campaign:
        assert campaign.rounds.current == 2


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"strategy": "best"}, "choose place or mgue, or give module:name"),
        ({"rounds": -1}, "--rounds"),
        ({"start": "warm"}, "labelled:N"),
        ({"start": "labelled:x"}, "labelled:N"),
        ({"start": "labelled:1"}, "labelled:N"),
        ({"noise": 0.5}, "--noise 0.5"),
        ({"noise": 0.1, "strategy": "cal"}, "cal asks for classes"),
    ],
)
def test_a_player_that_cannot_play_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        player_of(**{"strategy": "mgue", **changed})


def test_more_labels_than_training_images_are_refused(game: Game, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="labelled:97 wants more images than the 96"):
        game(tmp_path, player_of("mgue", start="labelled:97"))


def test_a_folder_goes_on_with_its_own_player_only(game: Game, tmp_path: Path) -> None:
    player = player_of("mgue", 0)
    game(tmp_path, player)
    with pytest.raises(UsageError, match=r"another closure, lam: give a new --out"):
        game(tmp_path, player_of("mgue", 0, lam=2.0, closure="none"))
    with pytest.raises(UsageError, match="another start"):
        game(tmp_path, replace(player, start="labelled:12"))
    with pytest.raises(UsageError, match="another gamma"):
        game(tmp_path, replace(player, training=replace(player.training, gamma=0.5)))
    with closing(Campaign.open(tmp_path)) as campaign:
        campaign.store.set(size=campaign.size - 1)
    with pytest.raises(CampaignError, match="images that it does not have"):
        game(tmp_path, player)


def test_a_folder_that_was_stopped_before_its_player_was_noted_goes_on(game: Game, tmp_path: Path) -> None:
    player = player_of("random", 0)
    split = split_of(game.archive, 0)
    begun = turn.begin(tmp_path, game.archive, player.settings, images=split.train, backbone=game.backbone)
    begun.close()
    with pytest.raises(UsageError, match="another per_round"):
        game(tmp_path, player_of("random", 0, per_round=7))
    (row,) = game(tmp_path, player)
    assert row["bits"] == 12
    assert Verdict.SIMILAR in {row.verdict for row in rows_of(tmp_path)}
