"""The paper's experiments: who plays in each figure, and that a run of all of them draws and reports them."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import anneal
from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.turn import Training
from anneal.errors import UsageError
from anneal.experiments import demo, figures, paper, reported, scenes, tuned
from anneal.experiments.claims import DIVERSITY, LAMBDAS
from anneal.experiments.oracle import Oracle, split_of
from anneal.experiments.paper import COLD, EXPERIMENTS, INNER, PAPERS, PRESETS, Base, players_of
from anneal.experiments.play import Player
from anneal.experiments.runner import Trial
from anneal.settings import Settings

SMALL = replace(PRESETS["demo"], labelled=12, per_round=12, kind="forest", bits=48)


def base_of(archive: str = "ucmerced", mode: str = "ours", cold: bool = False, train: int = 1680) -> Base:
    preset = PRESETS[archive]
    settings, training = paper.settings_of(mode, preset, cold)
    return Base(settings, training, preset, preset.cold_rounds if cold else preset.rounds, train)


def reproduce(
    experiment: str, archive: Archive, out: Path, rounds: int = 1, only: Sequence[str] = (), **changed: Any
) -> list[dict[str, Any]]:
    settings, training = paper.settings_of("ours", SMALL, experiment in COLD, px=32, per_round=12)
    preset = replace(SMALL, **changed)
    return paper.reproduce(
        experiment, archive, preset, settings, training, out, rounds=rounds, trials=1, jobs=1, only=only,
        report=None if experiment in INNER else out / "reported.jsonl",
    )  # fmt: skip


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


# -- who plays ---------------------------------------------------------------------------------------


def test_the_players_of_the_papers_figures() -> None:
    every = {name: PAPERS[name](base_of()) for name in PAPERS}
    lambdas = {name: player.settings for name, player in every["lambda"].items()}
    assert {name: own.lam for name, own in lambdas.items()} == {f"mgue-flat-{lam}": lam for lam in LAMBDAS}
    assert {(own.strategy, own.diversity) for own in lambdas.values()} == {("mgue", "none")}
    diversity = {name: player.settings.diversity for name, player in every["diversity"].items()}
    assert diversity == {"mgue": "kmeans", "mgue-flat-3": "none", "bcgue": "kmeans", "bcgue-flat": "none"}
    assert tuple(diversity) == DIVERSITY
    assert list(every["comparison"]) == ["mgue", "bcgue", "cal", "cal-metric", "random", "upper"]
    assert list(every["panels"]) == ["cal", "bcgue", "mgue"]


def test_a_figure_draws_the_players_of_its_experiment() -> None:
    for name, (_, labels) in figures.FIGURES.items():
        drawn = set(labels) | ({"upper"} if name == "comparison" else set())
        assert drawn == set(PAPERS[name](base_of())), name
    assert set(figures.BEYOND) <= set(paper.beyond(base_of(cold=True)))


def test_a_player_of_several_figures_is_the_same_in_all_and_plays_once() -> None:
    base = base_of()
    everyone: dict[str, list[Player]] = {}
    for makers in PAPERS.values():
        for name, player in makers(base).items():
            everyone.setdefault(name, []).append(player)
    assert len(everyone["mgue"]) == 3
    assert all(player == players[0] for players in everyone.values() for player in players)
    every = players_of("all", base)
    assert set(every) == set(everyone)
    assert len(every) == 13
    assert every == {name: players[0] for name, players in everyone.items()}


def test_players_start_as_in_the_paper() -> None:
    aid = players_of("comparison", base_of("aid", train=8000))
    assert {aid[name].start for name in ("mgue", "cal", "random")} == {"labelled:80"}
    assert (aid["mgue"].rounds, aid["mgue"].settings.per_round) == (18, 392)
    assert (aid["upper"].rounds, aid["upper"].start) == (0, "labelled:8000")
    assert aid["upper"].training.length == 19, "as long as the others in all rounds"
    base = base_of("ucmerced")
    mgue = players_of("comparison", base)["mgue"]
    assert mgue.start == "labelled:84"
    assert 369 + mgue.rounds * mgue.settings.per_round == 4059
    settings, _ = paper.settings_of("ours", PRESETS["ucmerced"], cold=False, per_round=336)
    assert settings.per_round == 336
    own = mgue.settings
    assert (own.share, own.recheck, own.pseudo_labels, own.heldout) == (0.0, 0.0, 0.0, 0.0)


def test_cal_trains_a_softmax_alone_and_the_other_labellers_train_the_metric_too() -> None:
    players = players_of("comparison", base_of())
    assert (players["cal"].training.classes, players["cal"].training.metric) == (True, False)
    assert (players["cal-metric"].training.classes, players["cal-metric"].training.metric) == (True, True)
    assert players["mgue"].training == Training()


def test_paper_mode_has_the_papers_network_and_training() -> None:
    settings, training = paper.settings_of("paper", PRESETS["ucmerced"], False, backbone="weights", px=96)
    assert (settings.backbone, settings.px, settings.depth, settings.head, settings.views) == (
        "weights", 96, "full", "paper", 1,
    )  # fmt: skip
    assert (settings.loss, settings.closure, settings.lam, settings.restart) == (
        "contrastive", "single", 3.0, "cold",
    )  # fmt: skip
    assert training == Training(recipe="paper")
    players = players_of("comparison", base_of(mode="paper"))
    assert "cal-metric" not in players
    assert players["upper"].settings.closure == "full"
    assert players["upper"].training.length == 1, "a cold start trains once"


def changed_between(one: Player, other: Player) -> set[str]:
    """What two players differ in."""
    names = {
        name
        for name in ("start", "noise", "overlooked", "ablation", "rounds")
        if getattr(one, name) != getattr(other, name)
    }
    for part in ("settings", "training"):
        own = asdict(getattr(one, part))
        others = asdict(getattr(other, part))
        names |= {name for name in own if own[name] != others[name]}
    return names


def test_each_choice_changes_one_thing() -> None:
    base = base_of()
    every = players_of("choices", base)
    for name, player in every.items():
        strategy, _, what = name.partition(" ")
        changed = changed_between(player, base.player(strategy))
        expected = 0 if not what else 2 if "twice" in what else 1
        assert len(changed) == expected, (name, changed)
    assert "mgue compared-in-backbone" in every
    assert "mgue compared-in-head" in players_of("choices", base_of(mode="paper"))


def test_players_past_the_paper_start_from_nothing_with_the_products_settings() -> None:
    base = base_of(cold=True)
    product = replace(Settings(), per_round=123, heldout=0.0)
    for experiment in COLD:
        for name, player in players_of(experiment, base).items():
            strategy, _, what = name.partition(" ")
            assert (player.start, player.rounds) == ("cold", 14)
            plain = Player(replace(product, strategy=strategy), 14, training=paper.training_of(strategy))
            changed = changed_between(player, plain)
            if experiment == "noise":
                assert f"noise-{player.noise:.0%}" in name
                varied = {"trusted": {"recheck"}, "doubt-taught": {"doubt"}}
                expected = [names for ending, names in varied.items() if what.endswith(ending)]
                assert [changed - {"noise"}] == (expected or [set()])
            else:
                assert len(changed) == bool(what), (name, changed)
    assert {player.settings.strategy for player in players_of("beyond", base).values()} == {
        "place", "mgue", "bcgue", "random", "cobra", "pfma", "cal", "cal-metric", "typiclust", "coreset",
    }  # fmt: skip


def test_only_some_players_play_if_they_are_named() -> None:
    assert list(players_of("comparison", base_of(), ["upper", "mgue"])) == ["mgue", "upper"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: players_of("figure7", base_of()), "choose all or comparison, lambda, diversity, panels"),
        (
            lambda: players_of("comparison", base_of(), ["mgue", "nobody"]),
            "--only nobody: comparison has mgue",
        ),
        (lambda: paper.preset("mars"), "choose ucmerced or aid"),
        (lambda: paper.settings_of("theirs", PRESETS["aid"], False), "choose ours or paper"),
    ],
)
def test_unknown_names_are_refused(call: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


# -- what is played ------------------------------------------------------------------------------------


@pytest.mark.parametrize("experiment", [*EXPERIMENTS, "all"])
def test_the_round_that_a_panel_shows_is_pinned(
    experiment: str, small_archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 bits are twelve labels (36 bits) and one round of twelve answers."""
    played: list[Trial] = []

    def only_note(archive: Archive, trials: Sequence[Trial], *rest: Any) -> list[dict[str, Any]]:
        played.extend(trials)
        raise KeyboardInterrupt

    monkeypatch.setattr(paper, "run", only_note)
    monkeypatch.setattr(tuned, "run", only_note)
    with pytest.raises(KeyboardInterrupt):
        reproduce(experiment, small_archive, tmp_path, rounds=4)
    pinned = {trial.name: trial.pinned for trial in played if trial.pinned}
    shown = {"cal", "bcgue", "mgue"} & {trial.name for trial in played}
    assert pinned == (dict.fromkeys(shown, (1,)) if experiment in (*PAPERS, "all") else {})
    assert {trial.inner for trial in played} == {experiment in INNER}
    rounds = {trial.player.rounds for trial in played if trial.name != "upper"}
    half = experiment == "finetune"  # it plays half of the rounds first
    assert rounds == {1 if experiment == "panels" or half else 3 if experiment in COLD else 4}


@pytest.mark.parametrize(
    ("kind", "said"), [("sea", "There is no class 'sea'"), (None, "No validation image")]
)
def test_a_panel_without_a_query_is_refused_before_anything_is_played(
    kind: str | None, said: str, small_archive: Archive, tmp_path: Path
) -> None:
    oracle = Oracle.of(small_archive)
    queries = split_of(small_archive, 0).val
    absent = [name for name in oracle.names if name not in {small_archive.labels[i] for i in queries}]
    with pytest.raises(UsageError, match=said):
        reproduce("panels", small_archive, tmp_path, kind=kind or absent[0])
    assert not (tmp_path / "run.json").exists()


@pytest.mark.usefixtures("quick_trials")
def test_all_figures_are_played_drawn_and_reported(small_archive: Archive, tmp_path: Path) -> None:
    reproduce("all", small_archive, tmp_path)
    rows = table(tmp_path / "curve.csv")
    players = set(players_of("all", base_of())) - {"upper"}
    expected = {(name, number) for name in players for number in "01"} | {("upper", "0"), ("frozen", "0")}
    assert {(row["player"], row["round"]) for row in rows} == expected
    bits = {
        name: [int(row["bits"]) for row in rows if row["player"] == name] for name in ("mgue", "cal", "upper")
    }
    assert bits["mgue"] == bits["cal"] == [12 * 3, 12 * 3 + 12]
    assert bits["upper"] == [96 * 3]
    assert len(table(tmp_path / "seconds.csv")) == 12 * 2 + 1
    for figure in (*figures.FIGURES, "panels"):
        assert (tmp_path / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.startswith("# drawn scenes")
    upper = next(float(row["map5_min"]) for row in rows if row["player"] == "upper")
    assert f"| all training labels | {upper:.3f} |" in text

    curve = (tmp_path / "curve.csv").read_bytes()
    panel = (tmp_path / "panels.png").read_bytes()
    other = small_archive.labels[split_of(small_archive, 0).val[0]]
    reproduce("panels", small_archive, tmp_path, kind=other, bits=36)
    assert (tmp_path / "panels.png").read_bytes() != panel, "another query, another round"
    assert (tmp_path / "curve.csv").read_bytes() == curve, "the other players and the later rounds stay"

    players_alone = {"mgue": players_of("all", base_of())["mgue"]}
    mgue = replace(players_alone["mgue"], rounds=0, start="cold")
    small = replace(mgue, settings=replace(mgue.settings, px=32, per_round=12))
    paper.simulate(small_archive, {"mgue": small}, tmp_path / "simulated", trials=1, jobs=1)
    schemas = []
    for folder in (tmp_path, tmp_path / "simulated"):
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        schemas.append({**{name: type(value) for name, value in about.items()}, **keys_of(about)})
    assert schemas[0] == schemas[1], "simulate and reproduce describe a run in the same way"
    assert (tmp_path / "simulated" / "curve.png").read_bytes().startswith(b"\x89PNG")


def keys_of(about: dict[str, Any]) -> dict[str, Any]:
    parts = {part: sorted(about[part]) for part in ("archive", "network", "versions")}
    return {**parts, "player": sorted(about["players"]["mgue"])}


@pytest.mark.usefixtures("quick_trials")
@pytest.mark.parametrize(
    ("experiment", "only", "bits", "title"),
    [
        ("beyond", ["place", "typiclust"], {"place": [12, 24], "typiclust": [12, 24]}, "beyond"),
        ("noise", ["place noise-5%"], {"place noise-5%": [12, 24]}, "noise"),
        ("choices", ["mgue", "mgue restart-cold"], {"mgue": [36, 48, 60]}, "open points"),
    ],
)
def test_other_experiments_are_played_and_reported(
    experiment: str,
    only: list[str],
    bits: dict[str, list[int]],
    title: str,
    small_archive: Archive,
    tmp_path: Path,
) -> None:
    reproduce(experiment, small_archive, tmp_path, rounds=2, only=only)
    rows = table(tmp_path / "curve.csv")
    assert {row["player"] for row in rows} == {"frozen", *only}
    for name, expected in bits.items():
        assert [int(row["bits"]) for row in rows if row["player"] == name] == expected
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    inner = ", training images only" if experiment in INNER else ""
    assert text.startswith(f"# drawn scenes{inner}: {title}")
    assert all(f"`{name}`" in text for name in only if experiment != "choices")
    for figure in ("answers", "acts", "minutes"):
        assert (tmp_path / f"{figure}.png").exists() == (experiment == "beyond")
    assert ("Minutes at 1.2 s an act and 4.4 s a class label." in text) == (experiment != "choices")


@pytest.mark.usefixtures("quick_trials")
def test_a_player_with_nothing_left_to_ask_ends_and_the_others_play_on(
    small_archive: Archive, tmp_path: Path
) -> None:
    rows = reproduce("beyond", small_archive, tmp_path, rounds=35, only=["place", "random"])
    played = {name: [row["round"] for row in rows if row["player"] == name] for name in ("place", "random")}
    assert played["random"] == list(range(35))
    rounds = len(played["place"])
    assert played["place"] == list(range(rounds))
    assert 5 < rounds < 35
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert f"\nRound {rounds} of place was to ask 12 pairs but only " in text
    assert (tmp_path / "answers.png").exists()


# -- test images ---------------------------------------------------------------------------------------


def parts_in(out: Path) -> dict[str, set[str]]:
    """The images of each part of the first trial."""
    parts: dict[str, set[str]] = {}
    for row in table(out / "splits" / "trial-0.csv"):
        parts.setdefault(row["split"], set()).add(row["path"])
    return parts


def names_of(archive: Archive, images: Any) -> set[str]:
    return {archive.paths[i] for i in images.tolist()}


@pytest.mark.usefixtures("quick_trials")
def test_without_a_log_no_test_image_is_played_or_scored(small_archive: Archive, tmp_path: Path) -> None:
    settings, training = paper.settings_of("ours", SMALL, False, px=32, per_round=12)
    preset = replace(SMALL, kind="fields", bits=36)
    for experiment, only in (("panels", []), ("comparison", ["upper"])):
        rows = paper.reproduce(
            experiment, small_archive, preset, settings, training, tmp_path, rounds=0, trials=1, jobs=1,
            only=only,
        )  # fmt: skip
    inner = parts_in(tmp_path)
    for seed in range(3):
        outer = split_of(small_archive, seed)
        tested = names_of(small_archive, outer.val) | names_of(small_archive, outer.test)
        assert all(tested.isdisjoint(part) for part in inner.values())
    upper = next(row for row in rows if row["player"] == "upper")
    assert upper["bits"] == 3 * len(inner["train"]), "all labels of the inner training part"
    assert (tmp_path / "report.md").read_text(encoding="utf-8").startswith("# drawn scenes, training images")
    assert (tmp_path / "panels.png").exists()
    assert not list(tmp_path.rglob("reported.jsonl"))


@pytest.mark.usefixtures("quick_trials")
def test_each_start_of_a_run_on_test_images_is_noted(small_archive: Archive, tmp_path: Path) -> None:
    out = tmp_path / "out"
    log = tmp_path / "reported.jsonl"
    mgue = Player(Settings(strategy="mgue", px=32, per_round=12, lam=2.0, seed=7), 0, noise=0.1)
    upper = replace(mgue, training=Training(length=3), noise=0.0)
    for rounds in (0, 1):  # it goes on
        players = {"mgue": replace(mgue, rounds=rounds), "longer": upper}
        paper.simulate(small_archive, players, out, trials=2, jobs=1, report=log)
    other = replace(mgue, settings=replace(mgue.settings, lam=4.0))
    with pytest.raises(UsageError, match="another lam"):
        paper.simulate(small_archive, {"mgue": other}, out, trials=1, jobs=1, report=log)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    changed = {"strategy": "mgue", "px": 32, "per_round": 12, "lam": 2.0}
    assert [line["players"] for line in lines] == [
        {"mgue": {"rounds": n, **changed, "noise": 0.1}, "longer": {"rounds": 0, **changed, "length": 3}}
        for n in (0, 1)
    ]
    for line in lines:
        assert (line["experiment"], line["archive"]) == ("simulate", small_archive.root.name)
        assert (line["trials"], line["seeds"], line["version"]) == (2, [7, 8], anneal.__version__)
        assert datetime.fromisoformat(line["date"]).utcoffset() == timedelta(0)
    split = split_of(small_archive, 7)
    assert parts_in(out)["test"] == names_of(small_archive, split.test)


def test_the_log_names_the_folder_of_a_network_and_not_where_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "resnet-18"
    folder.mkdir()
    trial = Trial("x", Player(Settings(backbone=str(folder)), 0), 0, False, tmp_path, tmp_path, tmp_path)
    reported.note(tmp_path / "reported.jsonl", "simulate", "photos", [trial])
    text = (tmp_path / "reported.jsonl").read_text(encoding="utf-8")
    assert json.loads(text)["players"] == {"x": {"rounds": 0, "backbone": "resnet-18"}}


@pytest.mark.usefixtures("quick_trials")
def test_a_run_on_test_images_and_one_without_are_kept_apart(small_archive: Archive, tmp_path: Path) -> None:
    players = {"random": Player(Settings(strategy="random", px=32, per_round=12), 0)}
    log = tmp_path / "reported.jsonl"
    paper.simulate(small_archive, players, tmp_path / "inner", trials=1, jobs=1)
    with pytest.raises(UsageError, match="holds a run without --report"):
        paper.simulate(small_archive, players, tmp_path / "inner", trials=1, jobs=1, report=log)
    assert not log.exists(), "it was refused before a test image was scored"
    paper.simulate(small_archive, players, tmp_path / "outer", trials=1, jobs=1, report=log)
    with pytest.raises(UsageError, match="holds a run with --report"):
        paper.simulate(small_archive, players, tmp_path / "outer", trials=1, jobs=1)
    (tmp_path / "inner" / "run.json").unlink()
    with pytest.raises(UsageError, match="was played with another split"):  # the trial knows it too
        paper.simulate(small_archive, players, tmp_path / "inner", trials=1, jobs=1, report=log)


@pytest.mark.parametrize("experiment", INNER)
def test_settings_are_not_chosen_on_test_images(
    experiment: str, small_archive: Archive, tmp_path: Path
) -> None:
    settings, training = paper.settings_of("ours", SMALL, experiment in COLD, px=32)
    with pytest.raises(UsageError, match=f"{experiment} is for choosing settings"):
        paper.reproduce(
            experiment, small_archive, SMALL, settings, training, tmp_path, rounds=0, trials=1, jobs=1,
            report=tmp_path / "log",
        )  # fmt: skip


def test_the_log_is_in_the_results_of_this_folder_or_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reported.log_of(Path("runs/mine")) == Path("runs/reported.jsonl")
    (tmp_path / "results").mkdir()
    assert reported.log_of(Path("runs/mine")) == Path("results/reported.jsonl")


# -- in earnest ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("one_process")
def test_paper_mode_trains_the_whole_network(small_archive: Archive, tmp_path: Path) -> None:
    settings, training = paper.settings_of("paper", SMALL, False, backbone="random:resnet-18", px=32)
    rows = paper.reproduce(
        "comparison",
        small_archive,
        SMALL,
        settings,
        training,
        tmp_path,
        rounds=0,
        trials=1,
        jobs=1,
        only=["mgue"],
        report=tmp_path / "reported.jsonl",
    )
    frozen, mgue = rows
    assert (frozen["player"], mgue["player"], mgue["bits"]) == ("frozen", "mgue", 36)
    assert mgue["map5_min"] != frozen["map5_min"]
    model = tmp_path / "trials" / "mgue-0" / "rounds" / "0000" / "model.safetensors"
    assert model.stat().st_size > 40_000_000, "all weights of the backbone are in it"


@pytest.mark.usefixtures("one_process")
def test_all_labels_beat_a_few_and_a_few_beat_none(tmp_path: Path) -> None:
    """The one test here that learns in earnest: the installed backbone, all steps, 240 scenes."""
    preset = replace(PRESETS["demo"], rounds=0)
    scenes.draw_archive(tmp_path / "scenes", per_kind=20, seed=2, px=64)
    archive = open_archive(tmp_path / "scenes", 64, tmp_path / "cache")
    settings, training = paper.settings_of("ours", preset, False, px=64, views=1, seed=2)
    rows = paper.reproduce(
        "comparison",
        archive,
        preset,
        settings,
        training,
        tmp_path / "out",
        rounds=0,
        trials=1,
        jobs=1,
        only=["random", "upper"],
        report=tmp_path / "reported.jsonl",
    )
    scores = {row["player"]: row["map5_min"] for row in rows}
    assert scores["frozen"] < scores["random"] < scores["upper"]


@pytest.mark.usefixtures("quick_trials")
def test_the_demo_draws_a_curve_and_what_a_search_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "PER_KIND", 10)
    monkeypatch.setattr(demo, "PX", 32)
    monkeypatch.setattr(demo, "ROUNDS", 0)
    rows = demo.run(tmp_path, seed=0)
    assert [(row["player"], row["bits"]) for row in rows] == [("place", 60), ("random", 60)]
    for name in ("curve.png", "retrieval.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
