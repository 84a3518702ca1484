"""Pictures: learning curves and retrieval panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from anneal.archive.pixels import disk

matplotlib.use("Agg")

# Told apart by dash and marker too, so that a print in black and white is readable.
STYLES = (
    ("#1b6ca8", "-", "o"),
    ("#c8553d", "--", "s"),
    ("#3c7a3c", "-.", "^"),
    ("#7a5195", ":", "D"),
    ("#555555", (0, (5, 1)), "v"),
    ("#b08900", (0, (1, 1)), "P"),
)
GOOD, WRONG = "#3c7a3c", "#d11507"


def curve(
    rows: Sequence[dict[str, Any]],
    path: Path,
    *,
    column: str = "map5_min",
    by: str = "strategy",
    labels: Mapping[str, str] | None = None,
    frozen: float | None = None,
    upper: float | None = None,
    paper: tuple[float, int] | None = None,
    title: str = "",
) -> None:
    """Quality against bits: for each strategy (or whatever is named in the column ``by``) the mean over
    trials and a band from least to most; without training, with all labels, and what the paper has reached
    with so many bits, as level lines."""
    figure = Figure(figsize=(7, 4.8), layout="constrained")
    axes = figure.add_subplot()
    names = list(dict.fromkeys(row[by] for row in rows))
    for name, (colour, dash, marker) in zip(names, STYLES * len(names), strict=False):
        mine = [row for row in rows if row[by] == name]
        rounds = sorted({row["round"] for row in mine})
        at = [[row for row in mine if row["round"] == number] for number in rounds]
        bits = [float(np.mean([row["bits"] for row in some])) for some in at]
        values = [[row[column] for row in some] for some in at]
        mean = [float(np.mean(some)) for some in values]
        label = (labels or {}).get(name, name)
        axes.plot(bits, mean, color=colour, linestyle=dash, marker=marker, markersize=4, label=label)
        if len({row["trial"] for row in mine}) > 1:
            low, high = [min(some) for some in values], [max(some) for some in values]
            axes.fill_between(bits, low, high, color=colour, alpha=0.15, linewidth=0)
    if upper is not None:
        axes.axhline(upper, color="black", linewidth=1, linestyle=(0, (6, 3)), label="all labels")
    if paper is not None:
        score, spent = paper
        axes.axhline(score, color="black", linewidth=1.2, linestyle=(0, (4, 2)))
        axes.annotate(
            f"the paper, after {spent} bits", (0, score), (4, 4), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="left", fontsize=9,
        )  # fmt: skip
    if frozen is not None:
        axes.axhline(frozen, color="black", linewidth=0.8, linestyle=(0, (1, 3)), label="untrained")
    axes.set_xlabel("bits of annotation")
    axes.set_ylabel({"map5_min": "mAP@5 (divided by min(R, 5))"}.get(column, column))
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
    """A row a query: its image, then its results with a caption each; wrong ones are framed red and
    right ones green where it is known which is which."""
    columns = 1 + max(len(row) for row in results)
    figure = Figure(figsize=(1.35 * columns, 1.6 * len(queries) + 0.4), layout="constrained")
    grid = figure.subplots(len(queries), columns, squeeze=False)
    for cell in grid.flat:
        cell.axis("off")
    for line, (query, row) in enumerate(zip(queries, results, strict=True)):
        for place, (image, caption, right) in enumerate([(*query, None), *row]):
            cell = grid[line, place]
            cell.imshow(image)
            cell.set_title(caption, fontsize=6.5, fontweight="bold" if place == 0 else "normal")
            if right is not None:
                height, width = image.shape[:2]
                colour = GOOD if right else WRONG
                frame = matplotlib.patches.Rectangle(
                    (-0.5, -0.5), width, height, fill=False, edgecolor=colour, linewidth=4
                )
                cell.add_patch(frame)
    figure.suptitle(title, fontsize=9)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    with disk(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
