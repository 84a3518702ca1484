"""The commands that bring answers in and everything out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal.console import (
    CampaignOption,
    Device,
    Json,
    err,
    escape,
    out,
    print_json,
    progress_bars,
    use_device,
)
from anneal.errors import UsageError
from anneal.watch import Watch

if TYPE_CHECKING:
    from anneal.campaign.campaign import Campaign

K = Annotated[int, typer.Option("-k", help="How many results.", min=1)]
MinScore = Annotated[
    float,
    typer.Option("--min-score", help="Leave out predictions that are less sure.", min=0, max=1),
]


def import_(
    file: Annotated[Path, typer.Argument(help="CSV or JSON lines: what export wrote, or a, b, verdict.")],
    campaign: CampaignOption = Path("campaign"),
) -> None:
    """Import answers that were given elsewhere: all of them, or none if a line is wrong.

    Example: [bold]anneal import answers.csv --campaign my-campaign[/]
    """
    from anneal.campaign import transfer
    from anneal.campaign.campaign import Campaign

    out.print(f"{transfer.read_answers(Campaign.open(campaign), file)} answers were imported.")


@dataclass(frozen=True)
class Wanted:
    """What an export was asked for, as given on the command line."""

    file: Path | None = None
    links: Path | None = None
    copy: bool = False
    min_score: float = 0.0


def export(
    kind: Annotated[str, typer.Argument(help="groups or answers; or an answers file.")],
    file: Annotated[Path | None, typer.Argument(help="The file to write; its suffix says how.")] = None,
    campaign: CampaignOption = Path("campaign"),
    links: Annotated[Path | None, typer.Option(help="Groups as folders of links to the images.")] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copies in place of links.")] = False,
    min_score: MinScore = 0.0,
) -> None:
    """Write what a campaign knows: groups, answers.

    Example: [bold]anneal export groups groups.csv --campaign my-campaign[/]
    """
    if kind not in KINDS and Path(kind).suffix and file is None:
        kind, file = "answers", Path(kind)
    if kind not in KINDS:
        raise UsageError(f"There is nothing called {kind!r} to export: use {', '.join(KINDS)}.")
    wanted = Wanted(file, links, copy, min_score)
    write, uses = KINDS[kind]
    for one in fields(Wanted):
        if getattr(wanted, one.name) != one.default and one.name not in uses:
            name = "A file" if one.name == "file" else f"--{one.name.replace('_', '-')}"
            raise UsageError(f"{name} does not go with {kind}: see anneal export --help.")
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(campaign)
    with progress_bars() as watch:
        said = write(opened, wanted, watch)
    out.print(escape(said), soft_wrap=True)


def _answers(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.campaign import transfer

    file = _file(wanted, "answers.csv")
    return f"{transfer.write_answers(campaign, file)} answers are in {file}."


def _groups(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.campaign.groups import classify as find_classes
    from anneal.export import groups, tables

    if wanted.copy and wanted.links is None:
        raise UsageError("--copy goes with --links FOLDER.")
    classes = find_classes(campaign, watch("placing")).at_least(wanted.min_score)
    archive = campaign.archive()
    said = []
    if wanted.links is not None:
        linked = groups.link_images(campaign, classes, archive, wanted.links, wanted.copy, watch("linking"))
        said.append(f"{linked} images are in folders below {wanted.links}.")
    if wanted.file is not None or not said:
        file = _file(wanted, "groups.csv")
        rows = tables.write(file, groups.GROUPS, groups.group_rows(campaign, classes, archive))
        said.append(f"{len(classes.every)} groups and {rows} images are in {file}.")
    return " ".join(said)


def _file(wanted: Wanted, example: str) -> Path:
    if wanted.file is None:
        raise UsageError(f"Name the file to write, for example {example}.")
    return wanted.file


Write = Callable[["Campaign", Wanted, Watch], str]
KINDS: dict[str, tuple[Write, set[str]]] = {
    "groups": (_groups, {"file", "links", "copy", "min_score"}),
    "answers": (_answers, {"file"}),
}  # kind → what writes it, and the options it takes


def classify(
    file: Annotated[Path, typer.Argument(help="The file to write: .csv, .jsonl or .parquet.")],
    campaign: CampaignOption = Path("campaign"),
    min_score: MinScore = 0.0,
) -> None:
    """Write the group of every image, settled by answers or predicted, and how sure that is.

    Example: [bold]anneal classify classes.csv --min-score 0.8 --campaign my-campaign[/]
    """
    from anneal.campaign.campaign import Campaign
    from anneal.campaign.groups import classify as find_classes
    from anneal.export import groups, tables

    opened = Campaign.open(campaign)
    with progress_bars() as watch:
        classes = find_classes(opened, watch("placing"))
    if not classes.every:
        raise UsageError("There are no groups yet: answer questions until two images are similar.")
    kept = classes.at_least(min_score)
    rows = tables.write(file, groups.CLASSES, groups.class_rows(opened, kept, opened.archive()))
    settled = int(classes.settled[opened.images].sum())
    left = int((kept.column[opened.images] < 0).sum())
    text = f"{rows} images are in {file}: {settled} settled by answers, {rows - settled - left} predicted"
    out.print(escape(text + (f", {left} without a group." if left else ".")), soft_wrap=True)


def search(
    images: Annotated[list[Path], typer.Argument(help="Images of the archive, or any image files.")],
    campaign: CampaignOption = Path("campaign"),
    k: K = 10,
    panel: Annotated[Path | None, typer.Option(help="Draw the results into this picture.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find the images most like an example.

    Example: [bold]anneal search photos/harbour7.jpg -k 10 --campaign my-campaign --panel found.png[/]
    """
    use_device(device)
    from anneal.campaign.campaign import Campaign
    from anneal.search import find_similar

    opened = Campaign.open(campaign)
    with progress_bars() as watch:
        every = find_similar(opened, images, k, watch("searching"))
    listed = [list(zip(results.paths, results.scores, strict=True)) for results in every]
    if as_json:
        report: list[Any] = [
            {"query": results.query, "results": [{"path": path, "score": round(s, 6)} for path, s in hits]}
            for results, hits in zip(every, listed, strict=True)
        ]
        print_json(report)
    else:
        for results, hits in zip(every, listed, strict=True):
            out.print(f"[bold]{escape(results.query)}[/]", soft_wrap=True)
            for path, score in hits:
                out.print(f"  {score:.4f}  {escape(path)}", soft_wrap=True)
    if panel is not None:
        from anneal.experiments import plots

        pixels = opened.archive().pixels
        cells = [
            [(pixels[i], f"{s:.3f}", None) for i, s in zip(results.ids, results.scores, strict=True)]
            for results in every
        ]
        plots.panel([(results.pixels, Path(results.query).name) for results in every], cells, panel)
        err.print(f"The picture is in {escape(str(panel))}.")
