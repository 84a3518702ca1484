"""Pictures: learning curves and retrieval panels."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from anneal.experiments.curves import PACE, Pace, Row, curves, with_costs
from anneal.files import explain_disk_errors

# Dashes and markers differ as well as colours, for prints in black and white.
COLOURS = ("#1b6ca8", "#c8553d", "#3c7a3c", "#7a5195", "#555555", "#b08900")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")
GOOD = "#3c7a3c"
WRONG = "#d11507"
AXES = {"bits": "bits of annotation", "acts": "acts: key presses", "minutes": "minutes, at {pace}"}


def curve(
    rows: Sequence[Row],
    path: Path,
    *,
    by: str = "strategy",
    labels: Mapping[str, str] | None = None,
    frozen: float | None = None,
    upper: float | None = None,
    paper: tuple[float, int] | None = None,
    title: str = "",
    axis: str = "bits",
    pace: Pace = PACE,
) -> None:
    """Draw quality against the ``axis``, which is bits, acts or minutes at a pace: for each value of the
    column ``by`` the mean over its trials and a band from least to most. Level lines show ``frozen``,
    ``upper`` (with all labels) and ``paper`` (score, bits)."""
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.add_subplot()
    axes.set_prop_cycle(color=COLOURS, linestyle=DASHES, marker=MARKERS)
    costs = curves(with_costs(rows, pace), axis, by)
    for name, its in curves(rows, by=by).items():
        cost = costs[name].mean
        (line,) = axes.plot(cost, its.mean, markersize=4, label=(labels or {}).get(name, name))
        if len(its.scores) > 1:
            low = its.scores.min(axis=0)
            high = its.scores.max(axis=0)
            axes.fill_between(cost, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    if upper is not None:
        axes.axhline(upper, color="black", linewidth=1, linestyle=(0, (6, 3)), label="all labels")
    if paper is not None:
        score, spent = paper
        name = f"the paper, after {spent} bits"
        axes.axhline(score, color="black", linewidth=1.2, linestyle=(0, (4, 2)), label=name)
    if frozen is not None:
        axes.axhline(frozen, color="black", linewidth=0.8, linestyle=(0, (1, 3)), label="untrained")
    axes.set_xlabel(AXES[axis].format(pace=pace))
    axes.set_ylabel("mAP@5 (divided by min(R, 5))")
    axes.set_title(title, loc="left", fontsize=10)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)  # never over a curve
    _save(figure, path)


def panel(
    queries: Sequence[tuple[NDArray[np.uint8], str]],
    results: Sequence[Sequence[tuple[NDArray[np.uint8], str, bool | None]]],
    path: Path,
    title: str = "",
) -> None:
    """Draw one line per query: its image, then its results, each with a caption. A result has a green frame
    if it is right, a red one if it is wrong, and none if that is not known (None)."""
    columns = 1 + max(len(row) for row in results)
    figure = Figure(figsize=(1.35 * columns, 1.6 * len(queries) + 0.4), layout="constrained")
    grid = figure.subplots(len(queries), columns, squeeze=False)
    for cell in grid.flat:
        cell.axis("off")
    for cells, query, row in zip(grid, queries, results, strict=True):
        for cell, (image, caption, right) in zip(cells, [(*query, None), *row], strict=False):
            cell.imshow(image)
            cell.set_title(caption, fontsize=6.5)
            if right is not None:
                height, width = image.shape[:2]
                colour = GOOD if right else WRONG
                frame = Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor=colour, linewidth=4)
                cell.add_patch(frame)
        cells[0].title.set_fontweight("bold")
    figure.suptitle(title, fontsize=9)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    with explain_disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
