"""The public names: what a notebook imports."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import anneal
from anneal.errors import UsageError


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh Python has loaded after some code."""
    ask = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("name", anneal.__all__)
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(anneal, name)
    assert value.__name__ == name
    assert inspect.getdoc(value)
    assert value.__module__.startswith("anneal."), "it is our own"
    own = value.__doc__ or ""
    assert not own.startswith(f"{name}("), "a dataclass without a docstring shows its signature"


def test_the_public_names_are_listed_once() -> None:
    assert sorted(anneal.__all__) == sorted(anneal._HOME)
    assert set(anneal.__all__) <= set(dir(anneal))
    assert anneal.__version__ == "0.1.0"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'anneal' has no attribute 'nothing'"):
        anneal.nothing  # noqa: B018


def test_importing_anneal_loads_nothing_heavy() -> None:
    heavy = {"torch", "scipy", "sklearn", "numpy", "matplotlib", "transformers", "anneal.campaign"}
    assert not loaded_by("import anneal") & heavy
    assert not loaded_by("from anneal import Campaign, find_similar") & {
        "torch",
        "transformers",
        "matplotlib",
    }
    assert "torch" in loaded_by("from anneal import turn")


@pytest.mark.usefixtures("quick_trials")
def test_a_campaign_by_the_library_alone(drawn: Path, tmp_path: Path) -> None:
    """The loop of the README: ask, answer, learn, search."""
    settings = anneal.Settings(px=32, per_round=6, heldout=0.0)
    campaign = anneal.create(drawn, tmp_path / "c", settings)
    labels = campaign.archive().labels
    while question := anneal.next_question(campaign):
        a, b = question.pair
        same = labels[a] == labels[b]
        campaign.answer(a, b, anneal.Verdict.SIMILAR if same else anneal.Verdict.DISSIMILAR)
    learned = anneal.turn(campaign)
    assert learned.vectors.shape[0] == 120
    (results,) = anneal.find_similar(campaign, [drawn / "beach" / "beach_000.jpg"], k=3)
    assert len(results.paths) == 3
    assert "beach/beach_000.jpg" not in results.paths
    with pytest.raises(UsageError, match="already holds a campaign"):
        anneal.create(drawn, tmp_path / "c", settings)
    assert issubclass(UsageError, anneal.AnnealError)
    campaign.close()
