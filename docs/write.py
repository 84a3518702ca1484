"""``make results``: the figures and the tables of these pages, from the curves in results/."""

from __future__ import annotations

from pathlib import Path

from anneal.experiments import curves, figures, report

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
TITLES = {"ucmerced": "UC-Merced", "ucmerced-paper": "UC-Merced, paper mode at 64 px", "aid": "AID at 150 px"}
BEYOND = {"ucmerced-beyond": "UC-Merced", "aid-beyond": "AID at 150 px"}

if __name__ == "__main__":
    for run, title in TITLES.items():
        figures.draw(curves.read(RESULTS / run / "curve.csv"), title, HERE / "figures" / run, ("png",))
    for run, title in BEYOND.items():
        rows = curves.read(RESULTS / run / "curve.csv")
        if run == "ucmerced-beyond":
            played = curves.read(RESULTS / "ucmerced-place" / "curve.csv")
            rows += [row for row in played if row["player"] == "place"]
        figures.answers(rows, run.split("-")[0], title, HERE / "figures" / f"{run}.png")
    for page in (HERE.parent / "README.md", HERE / "results.md", HERE / "method.md"):
        page.write_text(report.fill(page.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
