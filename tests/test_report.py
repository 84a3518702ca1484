"""What a report says of curves made by hand, and that the results page says what the curves say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from anneal import report
from anneal.report import PAPER, Curve, Row, bits_to, converged, curves

ROOT = Path(__file__).parent.parent


def rows(**players: list[list[float]]) -> list[Row]:
    """Scores by player and trial, at 369, 738, … bits."""
    return [
        {"player": player, "trial": trial, "round": number, "bits": 369 * (number + 1), "map5_min": score}
        for player, trials in players.items()
        for trial, scores in enumerate(trials)
        for number, score in enumerate(scores)
    ]


def test_a_curve_is_the_budgets_that_every_trial_has_reached() -> None:
    found = curves(rows(mgue=[[0.5, 0.7, 0.9], [0.6, 0.8]]))["mgue"]
    assert found.bits == [369, 738]
    assert found.mean.tolist() == pytest.approx([0.55, 0.75])
    assert found.std.tolist() == pytest.approx([np.sqrt(0.005), np.sqrt(0.005)])
    assert curves(rows(mgue=[[0.5, 0.7]]))["mgue"].std.tolist() == [0, 0]


def test_convergence_is_the_first_budget_within_one_deviation_of_the_upper_bound() -> None:
    upper = Curve([7000], np.array([[0.94], [0.96]]))  # mean 0.95, deviation 0.014
    mgue = Curve([369, 738, 1107], np.array([[0.92, 0.93, 0.94], [0.92, 0.94, 0.95]]))
    assert converged(mgue, upper) == 1107  # 0.935 + 0.014 < 0.95; 0.945 is near enough
    assert converged(Curve([369], np.array([[0.9], [0.9]])), upper) is None
    wide = Curve([369], np.array([[0.85], [0.99]]))  # its own deviation counts where it is larger
    assert converged(wide, upper) == 369


def test_bits_to_a_score() -> None:
    curve = Curve([369, 738, 1107], np.array([[0.7, 0.9, 0.8]]))
    assert [bits_to(curve, score) for score in (0.6, 0.85, 0.95)] == [369, 738, None]


def test_the_paper_s_numbers_stand_beside_ours_at_its_budget() -> None:
    text = report.paper_table(
        curves(rows(mgue=[[0.1, 0.2, 0.3, 0.4, 0.9456]], cal=[[0.1]])), PAPER["ucmerced"]
    )
    lines = text.splitlines()
    assert lines[2:] == ["| `mgue` | 1845 | 0.9356 | 0.9456 | +1.0 points | 0.946 – 0.946 |"]


def test_claims_are_confirmed_only_where_they_hold() -> None:
    good = {
        "mgue": [[0.5, 0.8, 0.9, 0.93, 0.95, 0.96]],
        "bcgue": [[0.5, 0.7, 0.85, 0.9, 0.95, 0.96]],
        "cal": [[0.5, 0.6, 0.7, 0.8, 0.85, 0.86]],
        "random": [[0.5, 0.5, 0.5, 0.6, 0.6, 0.6]],
        "upper": [[0.96]],
        **{f"mgue-flat-{lam}": [[0.5, 0.7, 0.8, 0.9, 0.9 - 0.01 * abs(lam - 3)]] for lam in range(1, 7)},
        "bcgue-flat": [[0.5, 0.4, 0.5, 0.6, 0.7]],
    }
    verdicts = [line.split(" | ")[1] for line in claims(good)]
    assert verdicts == ["confirmed"] * 5
    bad = {
        **good,
        "cal": [[0.5, 0.85, 0.7, 0.8, 0.85, 0.86]],  # ahead once
        "mgue-flat-5": [[0.5, 0.9, 0.9, 0.9, 0.9]],
        "bcgue-flat": [[0.5, 0.9, 0.9, 0.9, 0.9]],
        "upper": [[0.99]],
    }
    assert [line.split(" | ")[1] for line in claims(bad)] == ["confirmed"] + ["**not confirmed**"] * 4
    assert claims({"mgue": good["mgue"]}) == []


def claims(players: dict[str, list[list[float]]]) -> list[str]:
    return report.claims_table(curves(rows(**players)), PAPER["ucmerced"]).splitlines()[2:]


def test_a_page_is_written_anew_between_its_marks(tmp_path: Path) -> None:
    (tmp_path / "ucmerced").mkdir()
    lines = ["player,strategy,trial,round,bits,map5_min", "mgue,mgue,0,0,369,0.71", "mgue,mgue,1,0,369,0.73"]
    (tmp_path / "ucmerced" / "curve.csv").write_text("\n".join(lines) + "\n")
    page = "before\n<!-- report: curve ucmerced -->\nold\n<!-- end -->\nafter\n"
    filled = report.fill(page, tmp_path)
    assert filled == (
        "before\n<!-- report: curve ucmerced -->\n|  | 369 bits |\n| --- | --- |\n| `mgue` | 0.720 |\n"
        "<!-- end -->\nafter\n"
    )
    assert report.fill(filled, tmp_path) == filled


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
    shown = {found[2] for found in report.BLOCK.findall(pages)}
    assert shown == {path.parent.name for path in (ROOT / "results").glob("*/curve.csv")}
