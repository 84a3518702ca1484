"""Curves, tables and claims from rows made by hand; and the pages say what the curves in results/ say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.experiments import report
from anneal.experiments.claims import PAPER
from anneal.experiments.curves import Curve, Pace, Row, bits_to, converged, curves, read, with_costs
from anneal.settings import Settings

ROOT = Path(__file__).parent.parent.parent
COLUMNS = (
    "player,strategy,trial,round,bits,answers,implied,similar_share,threshold,"
    "map5_min,map5_hits,map5_all,p5,p5_class"
)


def rows(**players: list[list[float]]) -> list[Row]:
    """Scores by player and trial, at 369, 738, … bits."""
    return [
        {"player": player, "trial": trial, "round": number, "bits": 369 * (number + 1), "map5_min": score}
        for player, trials in players.items()
        for trial, scores in enumerate(trials)
        for number, score in enumerate(scores)
    ]


@pytest.mark.parametrize("columns", [COLUMNS, COLUMNS.replace("threshold", "alpha")])
def test_files_with_the_old_and_the_new_name_of_the_threshold_are_read(columns: str, tmp_path: Path) -> None:
    file = tmp_path / "curve.csv"
    lines = [
        columns,
        "frozen,frozen,0,0,0,,,,,0.6,0.8,0.1,0.65,0.64",
        "mgue,mgue,0,0,369,84,2097,0.4563,0.5452,0.7,0.8,0.2,0.75,0.74",
        "mgue,mgue,0,1,738,168,3000,0.5,0.6,0.8,0.9,0.3,0.85,0.84",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    by_player = curves(read(file))
    assert list(by_player) == ["frozen", "mgue"]
    assert by_player["mgue"].bits == [369, 738]
    assert by_player["mgue"].scores.tolist() == [[0.7, 0.8]]
    assert curves(read(file), "p5_class")["mgue"].scores.tolist() == [[0.74, 0.84]]


def test_a_file_without_players_has_one_player_per_strategy(tmp_path: Path) -> None:
    file = tmp_path / "curve.csv"
    file.write_text("strategy,trial,round,bits,map5_min\nplace,0,0,90,0.7\n", encoding="utf-8")
    (row,) = read(file)
    assert row == {
        "strategy": "place", "player": "place", "trial": 0, "round": 0, "bits": 90, "map5_min": 0.7,
    }  # fmt: skip


def costed(strategy: str, **columns: Any) -> dict[str, Any]:
    """Acts and minutes of one row at 6 s an act and 30 s a label."""
    row = {"player": "p", "strategy": strategy, "trial": 0, "round": 0, "map5_min": 0.5, **columns}
    (filled,) = with_costs([row], Pace(act=6, label=30))
    return {name: filled[name] for name in ("acts", "minutes")}


def test_minutes_are_acts_and_labels_at_a_pace() -> None:
    answered = {"bits": 100, "answers": "100"}
    assert costed("place", **answered, acts="40", labels="0") == {"acts": 40, "minutes": 4}
    labelled = {"bits": 136, "answers": "112", "acts": "52", "labels": "12"}  # 12 labels, then pairs
    assert costed("mgue", **labelled) == {"acts": 52, "minutes": 4 + 6}
    assert costed("cal", bits=60, answers="20", acts="20", labels="20") == {"acts": 20, "minutes": 10}
    assert costed("frozen", bits=0, answers="") == {"acts": 0, "minutes": 0}


def test_minutes_of_older_files_are_told_where_they_are_known() -> None:
    assert costed("place", bits=100, answers="100") == {"acts": 100, "minutes": 10}
    assert costed("cal", bits=60, answers="20", acts="") == {"acts": 20, "minutes": 10}
    unknown = costed("mgue", bits=136, answers="112")
    assert unknown["acts"] == 112
    assert np.isnan(unknown["minutes"])


def test_the_cost_table_has_bits_acts_and_minutes_to_reach_a_score() -> None:
    own = rows(place=[[0.5, 0.85], [0.6, 0.95]], mgue=[[0.5, 0.6], [0.5, 0.7]], frozen=[[0.4], [0.4]])
    for row in own:
        sheets = 3 if row["player"] == "place" else 1
        row |= {"strategy": row["player"], "answers": row["bits"], "acts": row["bits"] // sheets, "labels": 0}
    text = report.cost_table(own, (0.55, 0.8), Pace(act=2))
    assert text.splitlines() == [
        "| bits / acts / minutes to reach | 0.55 | 0.8 | in the end | trials |",
        "| --- | --- | --- | --- | --- |",
        "| `place` | 369 / 123 / 4.1 | 738 / 246 / 8.2 | 0.900 at 738 / 246 / 8.2 | 2 |",
        "| `mgue` | 738 / 738 / 24.6 | – | 0.650 at 738 / 738 / 24.6 | 2 |",
        "",
        "Minutes at 2 s an act and 4.4 s a class label.",
    ]


def test_a_curve_has_the_budgets_that_every_trial_has_reached() -> None:
    curve = curves(rows(mgue=[[0.5, 0.7, 0.9], [0.6, 0.8]]))["mgue"]
    assert curve.bits == [369, 738]
    assert curve.mean.tolist() == pytest.approx([0.55, 0.75])
    assert curve.std.tolist() == pytest.approx([np.sqrt(0.005), np.sqrt(0.005)])
    assert curves(rows(mgue=[[0.5, 0.7]]))["mgue"].std.tolist() == [0, 0]


def test_the_budget_of_a_round_is_the_mean_over_the_trials() -> None:
    unequal = rows(mgue=[[0.5, 0.7], [0.6, 0.8]])
    unequal[3]["bits"] += 10
    assert curves(unequal)["mgue"].bits == [369, 743]


def test_convergence_is_the_first_budget_within_one_deviation_of_the_upper_bound() -> None:
    upper = Curve([7000], np.array([[0.94], [0.96]]))  # mean 0.95, deviation 0.014
    mgue = Curve([369, 738, 1107], np.array([[0.92, 0.93, 0.94], [0.92, 0.94, 0.95]]))
    assert converged(mgue, upper) == 1107  # 0.935 + 0.014 < 0.95, and 0.945 + 0.014 > 0.95
    assert converged(Curve([369], np.array([[0.9], [0.9]])), upper) is None
    wide = Curve([369], np.array([[0.85], [0.99]]))  # its own deviation does not count
    assert converged(wide, upper) is None


def test_bits_to_a_score() -> None:
    curve = Curve([369, 738, 1107], np.array([[0.7, 0.9, 0.8]]))
    assert [bits_to(curve, score) for score in (0.6, 0.85, 0.95)] == [369, 738, None]


def test_the_bits_to_each_score_of_the_players_that_have_a_curve() -> None:
    played = rows(place=[[0.7, 0.9, 0.95], [0.8, 0.9, 0.97]], mgue=[[0.6, 0.62, 0.8], [0.7, 0.58, 0.9]])
    frozen = [
        {"player": "frozen", "trial": trial, "round": 0, "bits": 0, "map5_min": 0.6} for trial in (0, 1)
    ]
    by_player = curves([*played, *frozen])
    assert report.reach_table(by_player, (0.8, 0.96)).splitlines()[2:] == [
        "| `place` | 738 | 1107 | 0.960 at 1107 |",
        "| `mgue` | 1107 | not reached | 0.850 at 1107 |",
    ]


def test_the_paper_s_scores_are_compared_with_ours_at_its_budget() -> None:
    text = report.paper_table(
        curves(rows(mgue=[[0.1, 0.2, 0.3, 0.4, 0.9456]], cal=[[0.1]])), PAPER["ucmerced"]
    )
    lines = text.splitlines()
    assert lines[2:] == ["| `mgue` | 1845 | 0.9356 | 0.9456 | +1.0 points | 0.946 – 0.946 |"]


GOOD = {
    "mgue": [[0.5, 0.8, 0.9, 0.93, 0.95, 0.96], [0.5, 0.82, 0.9, 0.93, 0.95, 0.96]],
    "bcgue": [[0.5, 0.7, 0.85, 0.9, 0.95, 0.96]] * 2,
    "cal": [[0.5, 0.6, 0.7, 0.8, 0.85, 0.86]] * 2,
    "random": [[0.5, 0.5, 0.5, 0.6, 0.6, 0.6]] * 2,
    "upper": [[0.96], [0.97]],
    **{f"mgue-flat-{lam}": [[0.5, 0.7, 0.8, 0.9, 0.9 - 0.01 * abs(lam - 3)]] * 2 for lam in range(1, 7)},
    "bcgue-flat": [[0.5, 0.4, 0.5, 0.6, 0.7]] * 2,
}


def claims(**changed: list[list[float]]) -> list[str]:
    """Which claims hold: early, order, λ, diversity, convergence."""
    table = report.claims_table(curves(rows(**{**GOOD, **changed})), PAPER["ucmerced"])
    return [line.split(" | ")[1] for line in table.splitlines()[2:]]


def test_claims_that_hold_are_confirmed() -> None:
    assert claims() == ["confirmed"] * 5


@pytest.mark.parametrize(
    ("which", "changed", "outcome"),
    [
        (0, {"bcgue": [[0.5, 0.9, 0.95, 0.96, 0.96, 0.96]] * 2}, "**not confirmed**"),
        (0, {"bcgue": [[0.5, 0.7, 0.85, 0.94, 0.95, 0.96]] * 2}, "confirmed but at 1476 bits"),
        (1, {"cal": [[0.5, 0.85, 0.7, 0.8, 0.85, 0.86]] * 2}, "confirmed but at the budgets named"),
        (1, {"random": [[0.5, 0.9, 0.9, 0.9, 0.9, 0.9]] * 2}, "**not confirmed**"),
        (2, {"mgue-flat-5": [[0.5, 0.9, 0.9, 0.9, 0.9]] * 2}, "**not confirmed**"),
        (
            2,
            {"mgue-flat-5": [[0.5, 0.9, 0.9, 0.9, 0.9], [0.5, 0.6, 0.75, 0.85, 0.9]]},
            "within noise: λ = 5 is, by +1.2 ± 8.8 points",
        ),
        (3, {"bcgue-flat": [[0.5, 0.9, 0.9, 0.9, 0.9]] * 2}, "**not confirmed**"),
        (
            3,
            {"bcgue-flat": [[0.5, 0.68, 0.82, 0.86, 0.9], [0.5, 0.5, 0.6, 0.7, 0.8]]},
            "confirmed, within noise",
        ),
        (4, {"upper": [[0.99], [0.991]]}, "**not confirmed**"),
        (4, {"bcgue": [[0.5, 0.7, 0.8, 0.85, 0.9, 0.91]] * 2}, "confirmed for mgue"),
    ],
)
def test_a_claim_is_confirmed_only_as_far_as_it_holds(
    which: int, changed: dict[str, list[list[float]]], outcome: str
) -> None:
    assert claims(**changed)[which] == outcome


def test_a_claim_is_left_out_if_its_players_have_not_played() -> None:
    table = report.claims_table(curves(rows(mgue=[[0.5]], cal=[[0.5]], random=[[0.4]])), PAPER["ucmerced"])
    assert table.splitlines()[2:] == []
    first_budgets = rows(**{name: [[0.5]] for name in GOOD if name != "upper"}, upper=[[0.9], [0.9]])
    assert report.claims_table(curves(first_budgets), PAPER["ucmerced"]).splitlines()[2:] == []
    begun = rows(mgue=[[0.5, 0.6]], cal=[[0.5, 0.5]], random=[[0.4]])  # random has one budget only
    (line,) = report.claims_table(curves(begun), PAPER["ucmerced"]).splitlines()[2:]
    assert "mgue > cal" in line
    assert "random:" not in line


def test_a_variant_is_compared_with_the_plain_strategy_at_equal_bits() -> None:
    by_player = curves(rows(mgue=[[0.5, 0.6, 0.7], [0.5, 0.6, 0.7]]))
    by_player["mgue half-as-fast"] = Curve([369, 1107], np.array([[0.5, 0.72], [0.5, 0.76]]))
    lines = report.choice_table(by_player).splitlines()
    assert lines[0] == "|  | 369 | 738 | 1107 | points ahead, 738 to 1107 | trials |"
    assert lines[2:] == [
        "| mgue | 0.500 | 0.600 | 0.700 |  | 2 |",
        "| mgue half-as-fast | 0.500 | 0.620 | 0.740 | +3.0 ± 2.1 | 2 |",
    ]


def test_a_variant_is_compared_over_the_budgets_that_the_plain_strategy_has_reached() -> None:
    scores = {"mgue": [[0.5, 0.6, 0.7]], "bcgue": [[0.5, 0.6]], "bcgue cold": [[0.5, 0.7, 0.9]]}
    lines = report.choice_table(curves(rows(**scores))).splitlines()
    assert lines[0] == "|  | 369 | 738 | 1107 | points ahead, 738 to 738 | trials |"
    assert lines[2:] == [
        "| mgue | 0.500 | 0.600 | 0.700 |  | 1 |",
        "| bcgue | 0.500 | 0.600 |  |  | 1 |",
        "| bcgue cold | 0.500 | 0.700 | 0.900 | +10.0 ± 0.0 | 1 |",
    ]


def test_a_variant_has_no_lead_if_the_plain_strategy_has_not_played() -> None:
    lines = report.choice_table(curves(rows(**{"mgue cold": [[0.5, 0.6]]}))).splitlines()
    assert lines[2:] == ["| mgue cold | 0.500 | 0.600 |  | 1 |"]


def test_a_variant_has_no_lead_until_it_shares_a_later_budget_with_the_plain_strategy() -> None:
    by_player = curves(rows(mgue=[[0.5, 0.6]]))
    by_player["mgue 336-a-round"] = Curve([369, 705], np.array([[0.5, 0.6]]))
    lines = report.choice_table(by_player).splitlines()
    assert lines[2:] == ["| mgue | 0.500 | 0.600 |  | 1 |", "| mgue 336-a-round | 0.500 |  |  | 1 |"]


def test_the_summary_has_no_training_first_then_place_and_its_key_presses(tmp_path: Path) -> None:
    head = "player,strategy,trial,round,bits,acts,map5_min"
    place = ["frozen,frozen,0,0,0,,0.6", "place,place,0,0,123,60,0.75", "place,place,0,1,246,90,0.85"]
    beyond = ["mgue,mgue,0,0,369,369,0.7", "frozen,frozen,0,0,0,,0.5", "place,place,0,0,123,123,0.8"]
    for name, lines in (("beyond", beyond), ("place", place)):
        (tmp_path / f"ucmerced-{name}").mkdir()
        (tmp_path / f"ucmerced-{name}" / "curve.csv").write_text("\n".join([head, *lines]), encoding="utf-8")
    assert report.block("summary", "ucmerced", tmp_path).splitlines()[2:] == [
        "| no training | 0.600 | 0.600 | 0.600 | 0.600 | 0.600 | 0.600 | 1 |",
        "| `place` | 0.750 | 0.850 | 0.850 | 0.850 | 0.850 | 0.850 | 1 |",
        "| key presses of `place` | 60 | 90 | 90 | 90 | 90 | 90 | 1 |",
        "| `mgue` | 0.700 | 0.700 | 0.700 | 0.700 | 0.700 | 0.700 | 1 |",
    ]


def test_features_have_a_line_each_and_a_column_for_each_archive(tmp_path: Path) -> None:
    head = "features,archive,dim,views,ms,frozen,trained,trained_std"
    lines = [
        "one,A,320,2,28.5,0.6,0.9,0.01",
        "one,B,320,2,28.5,0.4,0.8,0.01",
        "two,A,512,1,14.2,0.7,0.95,0.02",
    ]
    (tmp_path / "measured.csv").write_text("\n".join([head, *lines]), encoding="utf-8")
    assert report.block("features", "measured", tmp_path).splitlines() == [
        "| features | dimension | views | ms | A, frozen | B, frozen | A, trained | B, trained |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| one | 320 | 2 | 28.5 | 0.600 | 0.400 | 0.900 | 0.800 |",
        "| two | 512 | 1 | 14.2 | 0.700 |  | 0.950 |  |",
    ]


def test_a_page_is_written_again_between_its_marks(tmp_path: Path) -> None:
    (tmp_path / "ucmerced").mkdir()
    lines = ["player,strategy,trial,round,bits,map5_min", "mgue,mgue,0,0,369,0.71", "mgue,mgue,1,0,369,0.73"]
    (tmp_path / "ucmerced" / "curve.csv").write_text("\n".join(lines) + "\n")
    page = "before\n<!-- report: curve ucmerced -->\nold\n<!-- end -->\nafter\n"
    filled = report.fill(page, tmp_path)
    assert filled == (
        "before\n<!-- report: curve ucmerced -->\n|  | 369 bits | trials |\n| --- | --- | --- |\n"
        "| `mgue` | 0.720 | 2 |\n"
        "<!-- end -->\nafter\n"
    )
    assert report.fill(filled, tmp_path) == filled


@pytest.mark.parametrize(
    ("backbone", "line"),
    [
        ("efficientnet-lite0", "Earlier features: `efficientnet-lite0`."),
        (Settings().backbone, ""),
        ("weights/resnet-18", ""),
    ],
)
def test_a_table_says_which_features_it_has_if_they_are_not_the_default_any_more(
    tmp_path: Path, backbone: str, line: str
) -> None:
    run = tmp_path / "ucmerced"
    run.mkdir()
    (run / "curve.csv").write_text(
        "player,strategy,trial,round,bits,map5_min\nmgue,mgue,0,0,369,0.7\n", encoding="utf-8"
    )
    (run / "run.json").write_text(json.dumps({"network": {"backbone": backbone}}), encoding="utf-8")
    table = "|  | 369 bits | trials |\n| --- | --- | --- |\n| `mgue` | 0.700 | 1 |"
    assert report.block("curve", "ucmerced", tmp_path) == (f"{table}\n\n{line}" if line else table)


@pytest.mark.parametrize("name", ["README.md", "docs/results.md", "docs/method.md"])
def test_the_pages_say_what_the_curves_say(name: str) -> None:
    """If this fails, run ``make results``."""
    page = (ROOT / name).read_text(encoding="utf-8")
    assert report.BLOCK.search(page)
    assert report.fill(page, ROOT / "results") == page


def test_every_run_that_is_kept_is_on_a_page() -> None:
    pages = "".join(
        (ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("results.md", "method.md")
    )
    shown = {match[3] for match in report.BLOCK.finditer(pages) if match[2] not in ("features", "tuned")}
    assert shown == {path.parent.name for path in (ROOT / "results").glob("*/curve.csv")}
