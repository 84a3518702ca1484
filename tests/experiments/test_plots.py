"""What the pictures show: the points of a curve, its band, and the frames of a panel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from anneal.errors import DiskError
from anneal.experiments import plots
from anneal.experiments.curves import Pace, Row, curves

UNFINISHED = {"place": [[0.5, 0.7, 0.9], [0.6, 0.8]], "random": [[0.5, 0.6]]}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn, in place of their files."""
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **options: drawn.append(figure))
    return drawn


def rows(scores: dict[str, list[list[float]]]) -> list[Row]:
    """Scores by strategy and trial, at 100, 200, … bits."""
    return [
        {"strategy": name, "trial": trial, "round": number, "bits": 100 * (number + 1), "map5_min": score}
        for name, trials in scores.items()
        for trial, of_trial in enumerate(trials)
        for number, score in enumerate(of_trial)
    ]


def test_an_unfinished_trial_ends_the_curve_where_the_report_ends_it(
    figures: list[Figure], tmp_path: Path
) -> None:
    plots.curve(rows(UNFINISHED), tmp_path / "curve.png")
    (axes,) = figures[0].axes
    points = {line.get_label(): np.column_stack(line.get_data()) for line in axes.lines}
    assert points["place"] == pytest.approx(np.array([[100, 0.55], [200, 0.75]]))
    assert points["random"] == pytest.approx(np.array([[100, 0.5], [200, 0.6]]))
    for name, curve in curves(rows(UNFINISHED), by="strategy").items():
        assert np.array_equal(points[name], np.column_stack([curve.bits, curve.mean]))


def test_the_band_is_from_the_least_to_the_most_and_a_single_trial_has_none(
    figures: list[Figure], tmp_path: Path
) -> None:
    plots.curve(rows(UNFINISHED), tmp_path / "curve.png")
    (axes,) = figures[0].axes
    (band,) = axes.collections
    corners = np.unique(np.asarray(band.get_paths()[0].vertices), axis=0)
    assert corners.tolist() == [[100, 0.5], [100, 0.6], [200, 0.7], [200, 0.8]]


def test_the_levels_and_the_labels(figures: list[Figure], tmp_path: Path) -> None:
    plots.curve(
        rows(UNFINISHED), tmp_path / "curve.png", labels={"place": "ours"},
        frozen=0.4, upper=0.95, paper=(0.9, 1845),
    )  # fmt: skip
    (axes,) = figures[0].axes
    legend = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert legend == ["ours", "random", "all labels", "the paper, after 1845 bits", "untrained"]
    levels = [np.unique(np.asarray(line.get_ydata())).tolist() for line in axes.lines[2:]]
    assert levels == [[0.95], [0.9], [0.4]]
    assert len(axes.texts) == 0  # nothing is written over a curve


def test_the_axis_is_bits_acts_or_minutes(figures: list[Figure], tmp_path: Path) -> None:
    own = rows({"place": [[0.5, 0.7], [0.6, 0.8]]})
    for row in own:
        row |= {"answers": row["bits"], "acts": row["bits"] // 2 + 10 * row["trial"], "labels": 0}
    expected = {"bits": [100, 200], "acts": [55, 105], "minutes": [5.5, 10.5]}
    for axis, cost in expected.items():
        plots.curve(own, tmp_path / "curve.png", axis=axis, pace=Pace(act=6))
        (axes,) = figures[-1].axes
        assert np.asarray(axes.lines[0].get_xdata()).tolist() == cost
    labels = [figure.axes[0].get_xlabel() for figure in figures]
    assert labels[:2] == ["bits of annotation", "acts: key presses"]
    assert labels[2] == "minutes, at 6 s an act and 4.4 s a class label"


def test_right_results_are_framed_green_and_wrong_ones_red(figures: list[Figure], tmp_path: Path) -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    queries = [(image, "first"), (image, "second")]
    plots.panel(
        queries, [[(image, "a", True), (image, "b", False)], [(image, "c", None)]], tmp_path / "p.png"
    )
    cells = figures[0].axes
    assert [cell.get_title() for cell in cells] == ["first", "a", "b", "second", "c", ""]
    frames = [[to_hex(frame.get_edgecolor()) for frame in cell.patches] for cell in cells]
    assert frames == [[], [plots.GOOD], [plots.WRONG], [], [], []]


def test_a_folder_that_is_a_file_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match="is not a folder"):
        plots.curve(rows(UNFINISHED), tmp_path / "file" / "curve.png")
