"""``make results``: the figures and the tables of these pages, from the curves in results/."""

from __future__ import annotations

from pathlib import Path

from anneal.experiments import curves, figures, report

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
TITLES = {
    "ucmerced": "UC-Merced",
    "ucmerced-paper-last": "UC-Merced, paper mode at 224 px",
    "ucmerced-paper-full": "UC-Merced, paper mode at 128 px",
    "aid": "AID at 150 px",
}
BEYOND = {"ucmerced": "UC-Merced", "aid": "AID at 150 px"}
PLACE = {"ucmerced": "ucmerced-place", "aid": "aid-sheets"}  # where `place` was played

if __name__ == "__main__":
    for run, title in TITLES.items():
        figures.draw(curves.read(RESULTS / run / "curve.csv"), title, HERE / "figures" / run, ("png",))
    for archive, title in BEYOND.items():
        rows = curves.read(RESULTS / f"{archive}-beyond" / "curve.csv")
        played = curves.read(RESULTS / PLACE[archive] / "curve.csv")
        rows += [row for row in played if row["player"] == "place"]
        figures.answers(rows, archive, title, HERE / "figures" / f"{archive}-beyond.png")
        figures.answers(rows, archive, title, HERE / "figures" / f"{archive}-beyond-minutes.png", "minutes")
    for page in (HERE.parent / "README.md", HERE / "results.md", HERE / "method.md"):
        page.write_text(report.fill(page.read_text(encoding="utf-8"), RESULTS), encoding="utf-8")
