"""Imports within the package point one way, and what answers at once loads nothing heavy."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import anneal

SOURCE = Path(anneal.__file__).parent

ORDER = [
    "errors",
    "pairs",
    "kept",
    "archive",
    "scenes",
    "store",
    "transitivity",
    "uncertainty",
    "mining",
    "diversity",
    "index",
    "spreading",
    "snapshot",
    "placing",
    "strategies",
    "slips",
    "metrics",
    "quality",
    "losses",
    "backbones",
    "model",
    "embed",
    "train",
    "plan",
    "campaign",
    "progress",
    "audit",
    "judging",
    "exchange",
    "cycle",
    "query",
    "worker",
    "web",
    "web.guard",
    "web.pictures",
    "web.app",
    "web.serve",
    "plots",
    "simulate",
    "report",
    "trials",
    "reproduce",
    "demo",
    "cli",
    "__main__",
]
"""A module may import those before it, never those after it."""

PURE = (
    "transitivity", "uncertainty", "mining", "diversity", "index", "spreading", "snapshot", "placing",
    "strategies", "slips", "metrics", "quality",
)  # fmt: skip
"""These know arrays only: no network, no file, nothing of torch."""


def name_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for file in sorted(SOURCE.rglob("*.py"))}
MODULES = sorted(name for name in FILES if name)  # the package itself has no name


def imports(node: ast.AST) -> Iterator[str]:
    """Full names of what a module imports when it runs, inside its functions too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: imports are written with the package's name"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    else:
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children = node.orelse
        for child in children:
            yield from imports(child)


def imported(module: str) -> set[str]:
    return set(imports(ast.parse(FILES[module].read_text(encoding="utf-8"))))


def siblings(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    names = {name.removeprefix("anneal.") for name in imported(module) if name.startswith("anneal.")}
    return {found for name in names for found in MODULES if name == found or name.startswith(found + ".")}


def test_imports_are_read_wherever_they_stand_but_for_type_checking() -> None:
    text = """
import os.path
from anneal.pairs import Ids as Numbers
if TYPE_CHECKING:
    from anneal.campaign.store import Store
else:
    import json
def late():
    with open("x"):
        from anneal.campaign import turn
        from anneal.network import model
"""
    assert set(imports(ast.parse(text))) == {
        "os.path",
        "anneal.pairs.Ids",
        "json",
        "anneal.cycle",
        "anneal.model",
    }


def test_the_order_names_every_module_once() -> None:
    assert sorted(ORDER) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_those_before_it(module: str) -> None:
    allowed = set(ORDER[: ORDER.index(module)])
    assert siblings(module) <= allowed


def test_the_package_itself_imports_none_of_its_modules() -> None:
    assert siblings("") == set()


@pytest.mark.parametrize("module", PURE)
def test_a_pure_module_knows_neither_torch_nor_store_nor_model(module: str) -> None:
    reached, new = set[str](), {module}
    while new:
        reached |= new
        new = {name for known in new for name in siblings(known)} - reached
    assert {"pairs"} <= reached <= {*PURE, "pairs", "errors"}
    outside = {name.split(".")[0] for known in reached for name in imported(known)} - {"anneal"}
    assert outside - set(sys.stdlib_module_names) <= {"numpy", "scipy", "sklearn", "threadpoolctl"}


def loaded(module: str, names: tuple[str, ...]) -> list[str]:
    """Which of these a fresh Python has loaded once it has imported the module."""
    ask = f"import sys, {module}; print(*(name for name in {names} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("module", ["anneal.cli", "anneal.campaign", "anneal.store"])
def test_what_answers_at_once_loads_nothing_heavy(module: str) -> None:
    assert loaded(module, ("torch", "sklearn", "matplotlib", "transformers")) == []


@pytest.mark.parametrize("module", ["web.serve", "query", "audit", "exchange"])
def test_what_serves_a_person_loads_no_torch(module: str) -> None:
    assert loaded(f"anneal.{module}", ("torch", "transformers", "matplotlib")) == []


def test_pure_modules_load_no_torch() -> None:
    everything = ", ".join(f"anneal.{module}" for module in PURE)
    assert loaded(everything, ("torch", "sqlite3", "anneal.strategies")) == ["anneal.strategies"]
