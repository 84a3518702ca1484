"""The results page says what the curves say."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
# | mgue <!-- ucmerced-lite0 --> | 0.123 | … : the mean map5_min of each round over the trials
ROWS = re.findall(r"^\| `?(\w+)`? <!-- ([\w-]+) --> \|(.*)\|$", PAGE, re.MULTILINE)


def test_the_page_has_rows_to_check() -> None:
    assert {run for _, run, _ in ROWS} == {
        path.parent.name for path in (ROOT / "results").glob("*/curve.csv")
    }


@pytest.mark.parametrize(("strategy", "run", "cells"), ROWS)
def test_every_number_is_the_mean_of_its_trials(strategy: str, run: str, cells: str) -> None:
    with (ROOT / "results" / run / "curve.csv").open() as lines:
        rows = [row for row in csv.DictReader(lines) if row["strategy"] == strategy]
    assert {row["trial"] for row in rows} == {"0", "1", "2"}
    rounds = sorted({int(row["round"]) for row in rows})
    means = [np.mean([float(row["map5_min"]) for row in rows if int(row["round"]) == r]) for r in rounds]
    assert [cell.strip() for cell in cells.split("|")] == [f"{mean:.3f}" for mean in means]
