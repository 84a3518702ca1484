"""A simulated campaign: what it writes, how it goes on after a stop, that it sees no class it may not."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.campaign import Campaign
from anneal.campaign.store import Event
from anneal.errors import UsageError
from anneal.experiments import play
from anneal.experiments.play import (
    COLUMNS,
    Row,
    Simulation,
    Split,
    Stage,
    Truth,
    campaign_at,
    play,
    score,
    split_of,
)
from anneal.method import metrics
from anneal.network import backbones
from anneal.settings import Plan

PLAN = Plan(backbone="random:resnet-18", px=32, per_round=20)
Play = Callable[..., list[Row]]


@pytest.fixture(scope="session")
def archive(drawn: Path, cache: Path) -> Archive:
    return open_archive(drawn, 32, cache)


@pytest.fixture(scope="session")
def stage(archive: Archive) -> Stage:
    return Stage.of(archive, backbones.load(PLAN.backbone), PLAN)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps: these tests are about the rounds, not about what is learnt in one."""
    from anneal.network import train

    def at(depth: str, recipe: str, **settings: float) -> train.Fit:
        return replace(train.Fit(steps=4, held=8), **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(train.Fit, "at", at)


def without_time(rows: list[Row]) -> list[Row]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.usefixtures("quick")
def test_the_curve_has_a_row_for_every_strategy_trial_and_round(stage: Stage, tmp_path: Path) -> None:
    names = ("mgue", "random", "bcgue", "cal")
    simulation = Simulation(PLAN, names, rounds=2, trials=2, initial="labelled:12")
    play.simulate(stage, simulation, tmp_path)
    with (tmp_path / "curve.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == COLUMNS
    found = [(row["strategy"], row["trial"], row["round"]) for row in rows]
    assert found == [(s, t, r) for t in "01" for s in names for r in ("0", "1", "2")]
    label = 12 * np.log2(12)
    for row in rows:
        number = int(row["round"])
        if row["strategy"] == "cal":  # as many labels as fit into the bits of a round: 20 / 3.58
            assert int(row["answers"]) == 12 + 6 * number
            assert int(row["bits"]) == round(label + 6 * number * np.log2(12))
            assert row["similar_share"] == "" or number == 0
        else:
            assert int(row["answers"]) == 12 + 20 * number
            assert int(row["bits"]) == round(label + 20 * number)
        assert 0 < float(row["map5_all"]) <= float(row["map5_min"]) <= 1
    about = json.loads((tmp_path / "run.json").read_text())
    assert about["settings"]["plan"]["per_round"] == 20
    assert about["versions"]["torch"]
    assert [entry[:3] for entry in about["seconds"]] == [
        [s, t, r] for t in (0, 1) for s in names for r in (0, 1, 2)
    ]
    assert set(about["seconds"][0][3]) == {"infer", "fit", "embed", "threshold", "ask"}
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("quick")
def test_an_oracle_errs_as_often_as_it_is_told_to(stage: Stage, tmp_path: Path) -> None:
    simulation = Simulation(replace(PLAN, per_round=150), ("place", "mgue"), rounds=0, noise=0.2)
    play.simulate(stage, simulation, tmp_path)
    for name in simulation.strategies:
        campaign = Campaign.open(tmp_path / "trials" / f"{name}-0")
        given = [act for act in campaign.store.acts(0) if act.verdict]
        right = stage.truth.classes[[act.a for act in given]] == stage.truth.classes[[act.b for act in given]]
        wrong = np.mean([act.verdict == 1 for act in given] != right)
        assert len(given) == campaign.store.given() == 150  # what is asked again is paid for
        assert 0.1 < wrong < 0.3
        assert any(not act.verdict for act in campaign.store.acts(0))  # and some was
        campaign.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", ["cal", "typiclust", "coreset"])
def test_classes_are_asked_from_nothing_too(stage: Stage, tmp_path: Path, name: str) -> None:
    rows = play.simulate(stage, Simulation(PLAN, (name,), rounds=2), tmp_path)
    assert [row["answers"] for row in rows] == [6, 12, 18]  # 20 bits pay for six classes of twelve
    assert [row["bits"] for row in rows] == [round(n * np.log2(12)) for n in (6, 12, 18)]


@pytest.mark.usefixtures("quick")
def test_the_seed_decides_the_curve(stage: Stage, tmp_path: Path) -> None:
    simulation = Simulation(PLAN, ("mgue",), rounds=1)
    one = play.simulate(stage, simulation, tmp_path / "one")
    again = play.simulate(stage, simulation, tmp_path / "again")
    other = play.simulate(stage, replace(simulation, plan=replace(PLAN, seed=1)), tmp_path / "other")
    assert without_time(one) == without_time(again)
    assert without_time(one) != without_time(other)
    trial = play.simulate(stage, replace(simulation, trials=2), tmp_path / "trials")[2:]
    assert [{**row, "trial": 0} for row in without_time(trial)] == without_time(other)


@pytest.mark.usefixtures("quick")
def test_a_warm_round_trains_on_from_the_last(stage: Stage, tmp_path: Path) -> None:
    warm, cold = (
        play.simulate(stage, Simulation(replace(PLAN, restart=restart), ("mgue",), 1), tmp_path / restart)
        for restart in ("warm", "cold")
    )
    assert without_time(warm)[0] == without_time(cold)[0]
    assert warm[1]["alpha"] != cold[1]["alpha"]
    assert len(list(tmp_path.glob("warm/**/model.safetensors"))) == 2
    assert not list(tmp_path.glob("cold/**/model.safetensors")), "a cold round needs none of those before it"


@pytest.mark.usefixtures("quick")
def test_a_longer_run_goes_on_where_the_shorter_one_ended(stage: Stage, tmp_path: Path) -> None:
    longer = Simulation(PLAN, ("mgue", "cal"), 3, 1, "labelled:12")
    whole = play.simulate(stage, longer, tmp_path / "whole")
    play.simulate(stage, replace(longer, strategies=("mgue",), rounds=1), tmp_path / "parts")
    kept = Campaign.open(tmp_path / "parts" / "trials" / "mgue-0").store.events()
    parts = play.simulate(stage, longer, tmp_path / "parts")
    assert kept == 20
    assert without_time(parts) == without_time(whole)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("strategy", ["mgue", "cal"])
@pytest.mark.parametrize("after", ["learn", "_ask"])
def test_a_round_cut_short_is_played_again_and_no_answer_is_given_twice(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, after: str
) -> None:
    simulation = Simulation(PLAN, (strategy,), 2, 1, "labelled:12")
    whole = play.simulate(stage, simulation, tmp_path / "whole")
    calls: list[int] = []
    real = getattr(simulate, after)

    def cut(*args: object, **kwargs: object) -> object:
        result = real(*args, **kwargs)
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(simulate, after, cut)
    with pytest.raises(KeyboardInterrupt):
        play.simulate(stage, simulation, tmp_path / "cut")
    assert without_time(play.simulate(stage, simulation, tmp_path / "cut")) == without_time(whole)


def test_a_killed_run_ends_with_the_curve_of_an_undisturbed_one(
    drawn: Path, cache: Path, tmp_path: Path
) -> None:
    def command(out: str) -> list[str]:
        options = "--backbone random:resnet-18 --px 32 --per-round 20 --rounds 1 --strategy mgue,random"
        return [
            *(sys.executable, "-m", "anneal", "simulate", str(drawn), *options.split()),
            *("--out", str(tmp_path / out), "--cache", str(cache)),
        ]

    subprocess.run(command("whole"), check=True, capture_output=True)
    for rounds in (1, 3):  # kill it when that many rows are written, then let it go on
        process = subprocess.Popen(command("killed"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        curve = tmp_path / "killed" / "curve.csv"
        while process.poll() is None and not (curve.exists() and len(curve.read_text().split()) > rounds):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command("killed"), check=True, capture_output=True)

    def rows(name: str) -> list[dict[str, str]]:
        with (tmp_path / name / "curve.csv").open() as lines:
            return without_time(list(csv.DictReader(lines)))

    assert rows("killed") == rows("whole")
    assert len(rows("whole")) == 4


@pytest.mark.usefixtures("quick")
def test_a_cold_start_reads_no_class_but_through_the_oracle(stage: Stage, tmp_path: Path) -> None:
    """Scrambled classes for everything but the oracle and the score: the curve must not move."""
    simulation = Simulation(PLAN, ("mgue", "random", "bcgue"), rounds=2)
    scrambled = tuple(np.random.default_rng(3).permutation(stage.archive.labels).tolist())
    assert scrambled != stage.archive.labels
    blind = replace(stage, archive=replace(stage.archive, labels=scrambled))
    seen = play.simulate(stage, simulation, tmp_path / "seen")
    assert without_time(play.simulate(blind, simulation, tmp_path / "blind")) == without_time(seen)
    for name in simulation.strategies:
        assert Campaign.open(tmp_path / "blind" / "trials" / f"{name}-0").store.labels() == {}


@pytest.mark.usefixtures("quick")
def test_only_training_images_are_asked_about_and_every_answer_is_true(stage: Stage, tmp_path: Path) -> None:
    play.simulate(stage, Simulation(PLAN, ("mgue", "random"), rounds=2), tmp_path)
    split = split_of(stage.archive, 0)
    for name in ("mgue", "random"):
        answers = Campaign.open(tmp_path / "trials" / f"{name}-0").store.answers()
        assert len(answers) == 60 == len(set(answers.pairs))
        assert set(answers.pairs.a) | set(answers.pairs.b) <= set(split.train.tolist())
        same = stage.truth.classes[answers.pairs.a] == stage.truth.classes[answers.pairs.b]
        assert (answers.verdicts == np.where(same, 1, 2)).all()


@pytest.mark.usefixtures("quick")
def test_another_run_s_folder_is_refused(stage: Stage, tmp_path: Path) -> None:
    simulation = Simulation(PLAN, ("random",), rounds=0)
    play.simulate(stage, simulation, tmp_path)
    with pytest.raises(UsageError, match="another lam"):
        play.simulate(stage, replace(simulation, plan=replace(PLAN, lam=1.0)), tmp_path)
    with pytest.raises(UsageError, match="another initial"):
        play.simulate(stage, replace(simulation, initial="labelled:12"), tmp_path)


@pytest.mark.usefixtures("quick")
def test_too_few_pairs_end_the_run_and_keep_its_rounds(stage: Stage, tmp_path: Path) -> None:
    simulation = Simulation(replace(PLAN, per_round=2500, recheck=0), ("mgue",), rounds=5)
    with pytest.raises(UsageError, match=r"only \d+ are still unknown.*kept"):
        play.simulate(stage, simulation, tmp_path)
    assert len((tmp_path / "curve.csv").read_text().splitlines()) >= 2


def test_the_split_is_the_archives_own_or_80_10_10(archive: Archive) -> None:
    split = split_of(archive, 0)
    assert [len(split.train), len(split.val), len(split.test)] == [96, 12, 12]
    assert sorted([*split.train, *split.val, *split.test]) == list(range(120))
    assert split_of(archive, 1).test.tolist() != split.test.tolist()
    own = replace(archive, splits=tuple(["train", "val", "test", ""] * 30))
    assert split_of(own, 0).val.tolist() == list(range(1, 120, 4))
    with pytest.raises(UsageError, match="each must have some"):
        split_of(replace(archive, splits=("train",) * 120), 0)


def test_the_score_is_what_the_formulas_say() -> None:
    """Three queries, six images to retrieve from, by hand."""
    rng = np.random.default_rng(2)
    vectors = rng.normal(size=(9, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    classes = np.array([0, 0, 1, 0, 0, 1, 1, 0, 2])
    split = Split(np.array([], dtype=np.int64), np.array([0, 1, 2]), np.arange(3, 9))
    expected: dict[str, list[float]] = {"min": [], "hits": [], "all": [], "p5": []}
    for query in (0, 1, 2):
        order = sorted(range(3, 9), key=lambda i: -float(vectors[query] @ vectors[i]))[:5]
        hits = [int(classes[i] == classes[query]) for i in order]
        total = sum(int(classes[i] == classes[query]) for i in range(3, 9))
        found = sum(hits[j] * sum(hits[: j + 1]) / (j + 1) for j in range(5))
        expected["min"].append(found / min(total, 5))
        expected["hits"].append(found / max(sum(hits), 1))
        expected["all"].append(found / total)
        expected["p5"].append(sum(hits) / 5)
    scores = score(vectors, split, classes)
    assert scores["p5"] == pytest.approx(np.mean(expected["p5"]))
    for meaning in ("min", "hits", "all"):
        assert scores[f"map5_{meaning}"] == pytest.approx(np.mean(expected[meaning]))
    assert metrics.mean(np.array([])) != metrics.mean(np.array([]))  # nan: no query, no score


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (
            {"strategies": ("best",)},
            "mgue, bcgue, random, place, place-apart, place-doubtful, place-alone, cal, cal-metric",
        ),
        ({"strategies": ("mgue", "mgue")}, "twice"),
        ({"rounds": -1}, "--rounds"),
        ({"trials": 0}, "--trials"),
        ({"initial": "warm"}, "labelled:N"),
        ({"initial": "labelled:x"}, "labelled:N"),
        ({"noise": 0.5}, "--noise"),
    ],
)
def test_what_cannot_be_played_is_refused(change: dict[str, object], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        replace(Simulation(PLAN), **change)  # type: ignore[arg-type]


def test_the_oracle_needs_classes(archive: Archive) -> None:
    with pytest.raises(UsageError, match="120 have none"):
        Truth.of(replace(archive, labels=("",) * 120))
    with pytest.raises(UsageError, match="All images are of one class"):
        Truth.of(replace(archive, labels=("sea",) * 120))


@pytest.mark.usefixtures("quick")
def test_a_strategy_that_goes_question_by_question_goes_on_where_it_was_stopped(
    stage: Stage, tmp_path: Path
) -> None:
    plan = replace(PLAN, strategy="place", per_round=12)
    split = split_of(stage.archive, 0)
    simulation = Simulation(plan, ("place",), rounds=1)

    def played(folder: str) -> list[tuple[int, int, int]]:
        campaign = campaign_at(tmp_path / folder, stage.archive, plan, split.train)
        rows = [row for row, _ in play(stage, campaign, split, simulation, 0)]
        assert [row["bits"] for row in rows] == [12, 24]
        said = [(row.a, row.b, row.verdict) for row in campaign.store.standing()]
        campaign.close()
        return said

    whole = played("whole")
    stopped = campaign_at(tmp_path / "stopped", stage.archive, plan, split.train)
    next(play(stage, stopped, split, simulation, 0))  # the first round
    stopped.store.add(
        Event(a, b, v, "oracle", "place", 1) for a, b, v in whole[12:17]
    )  # and part of the next
    stopped.close()
    assert played("stopped") == whole


@pytest.mark.usefixtures("quick")
def test_a_run_of_slips_that_is_stopped_at_any_answer_goes_on_as_if_it_had_not_been(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(PLAN, strategy="place", per_round=45, recheck=0.3)
    split = split_of(stage.archive, 0)
    simulation = Simulation(plan, ("place",), rounds=1, noise=0.2)
    answer = Campaign.answer_all

    def played(folder: str, stops: tuple[int, ...] = ()) -> list[tuple[int, int, int, str | None]]:
        calls = 0

        def stopping(campaign: Campaign, *rest: Any) -> None:
            nonlocal calls
            calls += 1
            if calls in stops:  # what may be a slip is withdrawn and not yet asked again
                raise KeyboardInterrupt
            answer(campaign, *rest)

        monkeypatch.setattr(Campaign, "answer_all", stopping)
        while True:
            with closing(campaign_at(tmp_path / folder, stage.archive, plan, split.train)) as campaign:
                try:
                    rows = [row["bits"] for row, _ in play(stage, campaign, split, simulation, 0)]
                except KeyboardInterrupt:
                    continue
                assert rows == [45, 90]
                acts = [*campaign.store.acts(0), *campaign.store.acts(1)]
                return [(act.a, act.b, act.verdict, act.entered) for act in acts]

    whole = played("whole")
    assert any(entered for *_, entered in whole)  # some were doubted
    assert played("stopped", (20, 38, 42, 47, 60, 81, 90)) == whole
