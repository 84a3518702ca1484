"""The docs say what is true: snippets run; commands, options, columns and public names are complete; links
lead somewhere."""

from __future__ import annotations

import ast
import csv
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

import anneal
from anneal import Campaign, cli
from anneal.campaign.rounds import FROZEN, Record
from anneal.campaign.store import Purpose, Store
from anneal.experiments import scenes
from anneal.settings import Settings, option, refuse_unused

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.glob("*.md"))]

Row = list[str]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", read(page), re.DOTALL)


def section(page: Path, heading: str) -> str:
    """The text from a heading to the next one of any level."""
    (text,) = re.findall(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", read(page), re.DOTALL | re.MULTILINE)
    assert isinstance(text, str)
    return text


def tables(text: str) -> list[list[Row]]:
    """The rows of each table, without its head."""
    blocks = re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n?)*)", text, re.MULTILINE)
    return [[_cells(line) for line in block.splitlines()] for block in blocks]


def _cells(line: str) -> Row:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def table_after(page: Path, text: str) -> list[Row]:
    return tables(read(page).split(text, 1)[1])[0]


def names(rows: list[Row], column: int = 0) -> list[str]:
    """The names in a column, where a cell may hold several with commas."""
    return [name.strip("` ") for row in rows for name in row[column].split(",")]


# -- snippets ----------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flat folder of 32 drawn images, such as harbour7.jpg, in the current folder."""
    scenes.draw_archive(tmp_path / "drawn", per_kind=4, seed=1, px=48)
    folder = tmp_path / "photos"
    folder.mkdir()
    for file in (tmp_path / "drawn").rglob("*.jpg"):
        kind, _, number = file.stem.rpartition("_")
        file.rename(folder / f"{kind}{int(number) + 5}.jpg")
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_snippets_teach_a_flat_folder_and_search_it(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = snippets(ROOT / "README.md")
    assert len([line for line in code.splitlines() if line]) <= 10
    Path("readme.py").write_text(code, encoding="utf-8")
    runpy.run_path("readme.py")
    results = ast.literal_eval(capsys.readouterr().out)
    assert len(results) == len(set(results)) == 5
    assert set(results) <= {file.name for file in photos.iterdir()} - {"harbour7.jpg"}

    Path("from-python").rename("my-campaign")  # what the guide calls it
    campaign = Campaign.open("my-campaign")
    (record,) = campaign.rounds.records()
    assert record.answers == campaign.log().given == 40
    assert len(campaign.archive()) == 32
    campaign.close()

    (answer_from_a_script,) = [one for one in snippets(DOCS / "guide.md") if "next_question" in one]
    Path("script.py").write_text(answer_from_a_script, encoding="utf-8")
    ran = runpy.run_path("script.py")
    assert ran["campaign"].log().given == 40, "the answer was undone"
    assert len(ran["campaign"].log().rows) >= 42


one_simulation = pytest.mark.xdist_group("simulated")  # made once


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory, drawn: Path, cache: Path) -> tuple[Path, str]:
    """The folder of a simulation of the guide's own strategy, and what was printed."""
    folder = tmp_path_factory.mktemp("guide")
    (code,) = [one for one in snippets(DOCS / "guide.md") if "def closest" in one]
    (folder / "mine.py").write_text(code, encoding="utf-8")
    words = f"simulate {drawn} --strategy mine:closest --rounds 1 --per-round 20 --px 32 --jobs 1 --out out"
    options = ["--cache", str(cache), "--backbone", "random:resnet-18"]
    command = [sys.executable, "-m", "anneal", *words.split(), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "out", done.stdout


@one_simulation
def test_the_guide_s_strategy_runs(simulated: tuple[Path, str]) -> None:
    assert "mine:closest trial 0 round 1:    40 bits" in simulated[1]


# -- commands and options ------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(cli.app)
    return {name: command for name, command in group.commands.items() if not command.hidden}


def options(command: Any) -> dict[str, Any]:
    """The default of each option."""
    given = [one for one in command.params if one.param_type_name == "option" and one.name != "help"]
    return {one.opts[0]: one.default for one in given}


SETTINGS = {option(one.name): one.default for one in fields(Settings)}


def test_every_command_stands_in_the_guide_with_its_help() -> None:
    rows = {
        cells[0].split()[1].strip("`"): cells[1]
        for cells in tables(section(DOCS / "guide.md", "Commands"))[0]
    }
    assert rows == {name: command.help.splitlines()[0] for name, command in commands().items()}


def test_the_settings_stand_in_the_guide_with_their_defaults() -> None:
    rows = tables(section(DOCS / "guide.md", "Settings of a campaign"))[0]
    assert {cells[0].strip("`"): cells[1].strip("`") for cells in rows} == {
        name: str(default) for name, default in SETTINGS.items()
    }


OPTION_SECTIONS = (
    "init", "label", "import, round, status", "finetune", "add, update, relocate, duplicates", "export",
    "classify", "search", "check, backup, restore, fetch", "simulate", "reproduce", "demo",
)  # fmt: skip


@pytest.mark.parametrize("heading", OPTION_SECTIONS)
def test_every_option_stands_in_the_guide_and_every_option_there_exists(heading: str) -> None:
    rows = tables(section(DOCS / "guide.md", heading))[0]
    documented = {cells[0].strip("`"): cells[1] for cells in rows}
    real: dict[str, Any] = {}
    for name in heading.split(", "):
        own = options(commands()[name])
        if SETTINGS.keys() <= own.keys():
            own = {one: default for one, default in own.items() if one not in SETTINGS}
        real |= own
    assert documented.keys() == real.keys()
    for name, default in documented.items():
        if default.startswith("`"):
            assert default == f"`{real[name]}`", name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_example_on_a_page_is_a_command_that_can_be_read(page: Path) -> None:
    blocks = re.findall(r"^```\n(.*?)^```", read(page), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("anneal ")]
    for line in lines:
        _, name, *given = shlex.split(line, comments=True)
        context = commands()[name].make_context(name, given)
        if SETTINGS.keys() <= options(context.command).keys():
            settings = Settings(**{one.name: context.params[one.name] for one in fields(Settings)})
            refuse_unused(settings, settings.strategy.split(","))


def test_every_command_has_a_table_of_options() -> None:
    assert {name for heading in OPTION_SECTIONS for name in heading.split(", ")} == commands().keys()


# -- formats -------------------------------------------------------------------------------------------

FORMATS = DOCS / "formats.md"


def test_the_tables_of_a_campaign_are_documented(tmp_path: Path) -> None:
    store = Store(tmp_path / "campaign.sqlite", create=True)
    schema = store.db.execute("SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
    real = {
        name: [column[1] for column in store.db.execute(f"PRAGMA table_info({name})")]
        for (name,) in schema
        if not name.startswith("sqlite_")
    }
    (version,) = store.db.execute("PRAGMA user_version").fetchone()
    store.close()
    text = section(FORMATS, "campaign.sqlite")
    documented = {cells[0].strip("`"): names([cells], 1) for cells in tables(text)[0]}
    assert documented == real
    assert f"the file's version, {version} now" in text
    explained = names(table_after(FORMATS, "`answers`:"))
    assert set(explained) == set(real["answers"]) - {"id", "annotator"}


def test_the_purposes_of_answers_are_documented() -> None:
    (cells,) = [cells for cells in table_after(FORMATS, "`answers`:") if cells[0] == "purpose"]
    assert set(re.findall(r"`([\w-]+)`", cells[1])) == {str(purpose) for purpose in Purpose}


def test_the_record_of_a_round_is_documented() -> None:
    assert names(table_after(FORMATS, "`about` of a round:")) == [one.name for one in fields(Record)]


@one_simulation
def test_the_files_of_a_simulation_are_documented(simulated: tuple[Path, str]) -> None:
    out, _ = simulated
    header = (out / "curve.csv").read_text(encoding="utf-8").splitlines()[0]
    assert names(table_after(FORMATS, "`curve.csv`:")) == header.split(",")
    header = (out / "seconds.csv").read_text(encoding="utf-8").splitlines()[0]
    assert names(table_after(FORMATS, "`seconds.csv`:")) == header.split(",")
    about = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert names(table_after(FORMATS, "`run.json`:")) == list(about)
    with (out / "splits" / "trial-0.csv").open(encoding="utf-8", newline="") as file:
        split = next(csv.reader(file))
    assert f"| `splits/trial-<t>.csv` | {', '.join(split)}:" in read(FORMATS)
    documented = {name.split("/")[0] for name in names(tables(section(FORMATS, "A simulation"))[0])}
    assert {file.name for file in out.iterdir() if file.suffix != ".lock"} <= documented


@one_simulation
def test_the_files_of_a_round_and_the_campaign_s_settings_are_documented(
    simulated: tuple[Path, str],
) -> None:
    out, _ = simulated
    (folder,) = (out / "trials").iterdir()
    campaign = Campaign.open(folder, anneal.batch("mine:closest", lambda *_: anneal.Pairs.none()))
    first, last = (campaign.rounds.files(number).folder for number in (FROZEN, 1))
    documented = names(table_after(FORMATS, "Files of a round:"))
    assert {file.name for file in last.iterdir()} == set(documented) - {"training.safetensors"}  # on its way
    assert {file.name for file in first.iterdir()} == {*documented[:3], "neighbours.npz"}
    keys = names(table_after(FORMATS, "`settings`:\n"))
    assert campaign.store.settings().keys() <= set(keys)
    assert {"criterion", "overlap", "agenda"} <= set(keys)
    campaign.close()


# -- public names, words, links ------------------------------------------------------------------------


def parameters(signature: str) -> list[str]:
    """The names of the parameters in a line such as ``f(a, b=1, *, c=None) -> int``."""
    function = ast.parse(f"def {signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def real_parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_the_api_page_has_every_public_name() -> None:
    headings = re.findall(r"^### (\w+)$", read(DOCS / "api.md"), re.MULTILINE)
    assert sorted(headings) == sorted(anneal.__all__)


@pytest.mark.parametrize("name", anneal.__all__)
def test_a_public_name_is_documented_with_its_signature_and_a_sentence(name: str) -> None:
    public = getattr(anneal, name)
    text = section(DOCS / "api.md", name)
    shown = re.match(r"\n```\n(.*)\n```\n(.+)", text)
    assert shown, f"a signature, then a sentence: {text[:80]}"
    signature = shown[1]
    if signature.startswith("class "):
        assert signature == f"class {name}({public.__bases__[0].__name__})"
    else:
        owner, _, method = signature.partition("(")[0].partition(".")
        assert owner == name
        function = getattr(public, method) if method else public
        assert parameters(signature.removeprefix(f"{owner}.")) == real_parameters(function)
    for cells in (row for rows in tables(text) for row in rows):
        method = cells[0].strip("`")
        assert parameters(method) == real_parameters(getattr(public, method.partition("(")[0])), method


WORDS = (
    "agenda", "annotator", "answer", "archive", "bits", "closure", "contradiction", "cutoff", "group",
    "held-out", "image", "implied", "mAP@5", "oracle", "P@5", "pair", "pseudo-label", "rank", "round",
    "serving model", "snapshot", "strategy", "suspect", "threshold", "vector", "verdict",
)  # fmt: skip


def test_the_glossary_has_the_words_in_order() -> None:
    words = [cells[0] for cells in tables(read(DOCS / "glossary.md"))[0]]
    assert set(WORDS) <= set(words)
    assert words == sorted(set(words), key=str.casefold)


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link: small letters, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", read(page), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", read(page)):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"
