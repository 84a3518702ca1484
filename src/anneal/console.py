"""What the commands share: options made from Settings, progress bars, and things to print."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich import markup
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from anneal.errors import AnnealError, UsageError
from anneal.names import printable, visible
from anneal.settings import Settings, option
from anneal.watch import Watch
from anneal.words import count

if TYPE_CHECKING:
    from anneal.archive.catalog import Archive


class _Terminal(Console):
    """A console that shows what a terminal would obey, in whatever is printed: a file's name or its words."""

    def render_str(self, text: str, **options: Any) -> Text:
        lines = (visible(line) for line in text.split("\n"))
        return super().render_str("\n".join(lines), **options)


out = _Terminal(highlight=False)
err = _Terminal(stderr=True, highlight=False)
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
CampaignOption = Annotated[Path, typer.Option("--campaign", help="The campaign's folder.")]
OwnStrategy = Annotated[
    str | None, typer.Option("--strategy", help="The campaign's own strategy, module:name, to confirm it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for a script to read.")]
Device = Annotated[
    str, typer.Option(envvar="ANNEAL_DEVICE", help="Where networks run: auto (a GPU if any), cpu, cuda, mps.")
]
Ray = Annotated[str | None, typer.Option("--ray", help="Work on a Ray cluster: its address, auto, or local.")]
GOES_ON = "Give the same command again: it goes on where it was."
IMAGE_STEPS = ("reading", "encoding", "embedding")  # whose progress counts images


class StoppedError(AnnealError):
    exit_code = 130


def use_device(name: str) -> None:
    """Run networks on this device, here and in the processes this one starts. Refuse one that is not here."""
    if name not in ("auto", "cpu"):
        from anneal.network.backbones import find_device  # loads torch

        find_device(name)
    os.environ["ANNEAL_DEVICE"] = name


def with_settings(**defaults: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every field of Settings; the command gets them as one ``settings``.
    ``defaults`` replace the fields' own."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        types = get_type_hints(Settings)
        options = []
        for one in fields(Settings):
            shown: Any = typer.Option(option(one.name), help=one.metadata["help"])
            default = defaults.get(one.name, one.default)
            made = inspect.Parameter(one.name, KEYWORD_ONLY, default=default)
            options.append(made.replace(annotation=Annotated[types[one.name], shown]))

        @wraps(command)
        def run(**values: Any) -> None:
            command(settings=Settings(**{one.name: values.pop(one.name) for one in options}), **values)

        own = inspect.signature(command, eval_str=True).parameters.values()
        plain = [one.replace(kind=KEYWORD_ONLY) for one in own if one.name != "settings"]
        run.__signature__ = inspect.Signature([*plain, *options])  # type: ignore[attr-defined]
        return run

    return decorate


class _SpeedColumn(ProgressColumn):
    """Images a second, for the steps that go from image to image."""

    def render(self, task: Task) -> Text:
        if task.description not in IMAGE_STEPS or not task.speed:
            return Text("")
        return Text(f"{task.speed:.0f} images/s")


@contextmanager
def is_free(campaign: Path) -> Iterator[bool]:
    """Whether this process has the campaign's machine for itself from now on: not while another process, say
    ``anneal label``, takes its turns."""
    from filelock import FileLock, Timeout

    from anneal.campaign.campaign import WORKER_LOCK

    try:
        lock = FileLock(campaign / WORKER_LOCK).acquire(timeout=0)
    except Timeout:
        yield False
        return
    with lock:
        yield True


@contextmanager
def in_use_here(campaign: Path) -> Iterator[None]:
    """Refuse to work on a campaign whose turns another process takes."""
    with is_free(campaign) as mine:
        if not mine:
            raise UsageError(
                "anneal label is open on this campaign and takes the machine's turns itself: end it first."
            )
        yield


@contextmanager
def progress_bars() -> Iterator[Watch]:
    """Progress bars on standard error, one line a step; gone when the work is done."""
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        _SpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def watch(step: str) -> Any:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=None, visible=False)

            def update(done: int, total: int) -> None:
                bars.update(tasks[step], completed=done, total=total, visible=done < total)

            return update

        try:
            yield watch
        except KeyboardInterrupt:
            raise StoppedError(f"Stopped. {GOES_ON}") from None


def print_json(value: Any) -> None:
    """JSON as every program and terminal reads it: ASCII, null and not NaN, names as exports have them."""
    plain = json.loads(json.dumps(value), parse_constant=lambda _: None)
    out.print_json(json.dumps(_with_names(plain)), ensure_ascii=True)


def _with_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_names(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_names(one) for one in value]
    return printable(value) if isinstance(value, str) else value


def print_row(row: dict[str, Any]) -> None:
    """One line of a learning curve."""
    share = f"{row['similar_share']:4.0%} similar" if row["similar_share"] != "" else ""
    where = f"{row['player']:>8} trial {row['trial']} round {row['round']}: {row['bits']:5d} bits"
    out.print(f"{where}  mAP@5 {row['map5_min']:.3f}  {share:12}  {row['seconds']:5.1f} s", soft_wrap=True)


def describe(archive: Archive, folder: Path | None = None) -> None:
    """How many images there are, and what is wrong with the rest; ``folder`` gets a list of what is left
    out."""
    classes = len({label for label in archive.labels if label})
    out.print(
        count(len(archive), "image") + (f" in {count(classes, 'class', 'classes')}." if classes else ".")
    )
    if told := archive.reading.told:
        out.print(f"They are read with {told}.", soft_wrap=True)
    if archive.skipped:
        err.print(f"[yellow]{count(len(archive.skipped), 'file')} could not be read and are left out:[/]")
        for path, why in archive.skipped[:10]:
            err.print(f"  {escape(path)}: {escape(why)}")
        if len(archive.skipped) > 10:
            err.print(f"  … and {len(archive.skipped) - 10} more")
        if folder is not None:
            listed = escape(str(archive.list_skipped(folder)))
            err.print(f"  All of them, with reasons, are in {listed}.", soft_wrap=True)
    if archive.duplicates:
        groups = count(len(archive.duplicates), "group of files has", "groups of files have")
        err.print(f"[yellow]{groups} the same content[/], for example")
        err.print("  " + escape(" = ".join(archive.paths[i] for i in archive.duplicates[0])))


def escape(text: str) -> str:
    """A name or a sentence to print: on one line, and not as markup."""
    return markup.escape(visible(text))
