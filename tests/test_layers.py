"""The rules of the source tree: who imports whom, who loads torch, and how large a piece of code may be."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import anneal

# -- the rules -------------------------------------------------------------------------------------

ROOM_OF = {
    **dict.fromkeys(("errors", "names", "pairs", "settings", "files", "watch", "words", "work"), "floor"),
    **dict.fromkeys(("cli", "cli_archive", "cli_care", "cli_experiments", "cli_export"), "cli"),
    "cli_finetune": "cli",
    **dict.fromkeys(("cli_label", "console", "__main__", ""), "cli"),  # "": the package
}  # a folder is a room, and so is any other module

MAY_IMPORT = {
    "floor": "",
    "archive": "floor",
    "method": "floor",
    "network": "floor archive method",
    "campaign": "floor archive method network",
    "search": "floor archive method network campaign",
    "export": "floor archive method network campaign search",
    "web": "floor archive method campaign search export",
    "experiments": "floor archive method network campaign search",
    "cluster": "floor",
    "cli": "floor archive method network campaign search export web experiments cluster",
}  # and each room may import from itself

MACHINE = ("turn", "extend", "networks", "finetune", "worker")
LOADS_TORCH = ("network", *(f"campaign.{name}" for name in MACHINE), "experiments")
TORCH = {"torch", "transformers", "efficientnet_lite_pytorch"}
METHOD_LIBRARIES = {"numpy", "scipy", "sklearn", "threadpoolctl", "faiss"}

METHODS = 25  # of a class, at most
FUNCTION_LINES = 60
MODULE_LINES = 400
LARGER: set[str] = set()  # exceptions, two at most: "module" or "module.name"

# -- reading the source ----------------------------------------------------------------------------

SOURCE = Path(anneal.__file__).parent


def name_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for file in sorted(SOURCE.rglob("*.py"))}
every_module = pytest.mark.parametrize("module", FILES)


def room(module: str) -> str:
    return ROOM_OF.get(module, module.split(".")[0])


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text(encoding="utf-8"))


def imports(node: ast.AST, late: bool) -> Iterator[str]:
    """Full names of what is imported when this runs; with ``late``, inside functions too."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"line {node.lineno}: imports are written with the package's name"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif late or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        children: Iterable[ast.AST] = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children = node.orelse
        for child in children:
            yield from imports(child, late)


def imported_modules(module: str, late: bool = True) -> set[str]:
    """The modules of the package that a module imports, and the packages they are in."""
    modules = set()
    for name in imports(tree(module), late):
        outer, _, path = name.partition(".")
        if outer == "anneal" and path != "__version__":
            parts = path.split(".")
            inner = {".".join(parts[:i]) for i in range(1, len(parts) + 1)} & set(FILES)
            modules |= inner or {""}
    return modules - {module}


def outside(module: str, late: bool = True) -> set[str]:
    """The top-level names of other packages that a module imports."""
    return {name.split(".")[0] for name in imports(tree(module), late)} - {"anneal"}


def test_imports_are_read_everywhere_except_under_type_checking() -> None:
    text = """
import os.path
from anneal.pairs import Ids as Numbers
if TYPE_CHECKING:
    from anneal.campaign.store import Store
else:
    import json
class Lazy:
    import csv
    def late():
        with open("x"):
            from anneal.campaign import turn
            import anneal.network.model
"""
    at_once = {"os.path", "anneal.pairs.Ids", "json", "csv"}
    assert set(imports(ast.parse(text), late=False)) == at_once
    later = {"anneal.campaign.turn", "anneal.network.model"}
    assert set(imports(ast.parse(text), late=True)) == at_once | later


# -- who imports whom ------------------------------------------------------------------------------


def test_the_rules_name_every_room() -> None:
    assert {room(module) for module in FILES} == set(MAY_IMPORT)


@every_module
def test_a_module_imports_from_its_own_room_and_from_those_below(module: str) -> None:
    allowed = {room(module), *MAY_IMPORT[room(module)].split()}
    too_high = {other for other in imported_modules(module) if room(other) not in allowed}
    assert too_high == set()


def test_no_two_modules_import_each_other() -> None:
    TopologicalSorter({module: imported_modules(module) for module in FILES}).prepare()


@pytest.mark.parametrize("module", [module for module in FILES if room(module) == "method"])
def test_the_method_needs_arrays_only(module: str) -> None:
    assert outside(module) - set(sys.stdlib_module_names) <= METHOD_LIBRARIES
    assert not outside(module) & {"sqlite3", "pathlib", "os", "io", "subprocess"}


# -- who loads torch -------------------------------------------------------------------------------


def may_load_torch(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in LOADS_TORCH)


@every_module
def test_torch_is_imported_in_few_modules(module: str) -> None:
    assert may_load_torch(module) or not outside(module) & TORCH


def test_no_other_module_loads_torch_when_it_is_imported() -> None:
    heavy = {module for module in FILES if outside(module, late=False) & TORCH}
    while more := {module for module in FILES if imported_modules(module, late=False) & heavy} - heavy:
        heavy |= more
    assert "network.model" in heavy
    assert {module for module in heavy if not may_load_torch(module)} == set()


def loaded(modules: str, names: Iterable[str]) -> set[str]:
    """Which of these a new Python process has loaded after it has imported the modules."""
    code = f"import sys, {modules}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split()) & set(names)


@pytest.mark.parametrize("modules", ["anneal", "anneal.cli", "anneal.campaign.campaign"])
def test_what_answers_at_once_loads_nothing_heavy(modules: str) -> None:
    assert loaded(modules, {*TORCH, "sklearn", "matplotlib", "faiss"}) == set()


@pytest.mark.parametrize(
    "modules",
    ["anneal.web.serve", "anneal.search, anneal.campaign.heldout, anneal.campaign.transfer"],
)
def test_what_serves_a_person_loads_no_torch(modules: str) -> None:
    assert loaded(modules, {*TORCH, "matplotlib"}) == set()


def test_the_method_loads_neither_torch_nor_a_database() -> None:
    modules = ", ".join(f"anneal.{module}" for module in FILES if room(module) == "method")
    assert loaded(modules, {*TORCH, "sqlite3", "anneal.method.strategies"}) == {"anneal.method.strategies"}


# -- how large a piece of code may be --------------------------------------------------------------


def too_large(module: str) -> Iterator[str]:
    """The module, its classes and its functions that are larger than the rules allow."""
    if len(FILES[module].read_text(encoding="utf-8").splitlines()) > MODULE_LINES:
        yield module
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree(module)):
        if isinstance(node, functions) and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES:
            yield f"{module}.{node.name}"
        if isinstance(node, ast.ClassDef) and sum(isinstance(one, functions) for one in node.body) > METHODS:
            yield f"{module}.{node.name}"


def test_no_module_class_or_function_is_too_large() -> None:
    assert {name for module in FILES for name in too_large(module)} == LARGER
    assert len(LARGER) <= 2
