"""The notebook of the docs runs, and what it shows is small and safe."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from anneal.archive.catalog import Archive, open_archive
from anneal.campaign.campaign import Campaign
from anneal.experiments import scenes
from anneal.search import Results
from anneal.settings import Settings

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"


@pytest.mark.filterwarnings("ignore")  # of the kernel's own libraries
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.reads(NOTEBOOK.read_text(), 4)  # type: ignore[no-untyped-call]
    assert NOTEBOOK.stat().st_size < 10_000
    nbformat.validate(notebook)
    ran = NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [one for cell in ran.cells for one in cell.get("outputs", [])]
    shown = [one["data"]["text/html"] for one in outputs if "data" in one]
    assert [text.count("<img") for text in shown] == [8, 0, 7]
    assert "32 images" in shown[0]
    assert "answers:" in shown[1]
    (printed,) = [
        one["text"] for one in outputs if one["output_type"] == "stream" and one["name"] == "stdout"
    ]
    assert "of 32 images in the right one" in printed


def test_names_are_escaped_and_pictures_are_small(tmp_path: Path) -> None:
    scenes.draw_archive(tmp_path / "in", per_kind=2, seed=1, px=48)
    first = next((tmp_path / "in").rglob("*.jpg"))
    first.rename(first.with_name("<script>alert(1)</script>'\".jpg".replace("/", "∕")))
    archive = open_archive(tmp_path / "in", 32, tmp_path / "cache")
    with closing(Campaign.create(tmp_path / "<b>c", archive, Settings(px=32), np.arange(16))) as campaign:
        shown = [html_of(archive), html_of(campaign)]
    pictures = [archive.shown(0)]
    shown.append(html_of(Results("<i>query", archive.shown(1), [0], [archive.paths[0]], [0.5], pictures)))
    for text in shown:
        assert "<script" not in text
        assert "<b>" not in text
        assert "<i>" not in text
        assert len(text) < 50_000


def html_of(shown: Archive | Campaign | Results) -> str:
    return shown._repr_html_()
