"""The docs say what is true: snippets run, every command and option is described, links lead somewhere."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from anneal import cli
from anneal.errors import UsageError
from anneal.method.strategies import named

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_s_ten_lines_run(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(drawn, tmp_path / "photos")
    monkeypatch.chdir(tmp_path)
    (code,) = snippets(ROOT / "README.md")
    (tmp_path / "readme.py").write_text(code)
    runpy.run_path("readme.py")
    found = capsys.readouterr().out.split()
    assert found[0] == "beach/beach_000.jpg", "an image is nearest to itself"
    assert len(set(found)) == 6
    assert all((drawn / path).exists() for path in found)


def test_the_guide_s_strategy_runs(
    drawn: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (code,) = [s for s in snippets(ROOT / "docs" / "guide.md") if "def closest" in s]
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    words = (
        f"simulate {drawn} --strategy mine:closest --rounds 1 --per-round 20 --px 32 --cache {cache} --out o"
    )
    monkeypatch.setattr("sys.argv", ["anneal", *words.split(), "--backbone", "random:resnet-18"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    assert "mine:closest trial 0 round 1:    40 bits" in capsys.readouterr().out
    with pytest.raises(UsageError, match="could not be imported"):
        named("mine:nothing")


def test_every_command_and_option_stands_in_the_guide() -> None:
    group: Any = typer.main.get_command(cli.app)
    guide = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    for name, command in group.commands.items():
        if command.hidden:
            continue
        (row,) = [line for line in guide.splitlines() if line.startswith(f"| `anneal {name}")]
        described = set(re.findall(r"`(--?[\w-]+)`", row))
        real = {p.opts[0] for p in command.params if p.param_type_name == "option"} - {"--help"}
        assert described == real, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]*)(?:#[\w-]*)?\)", text):
        if target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
