"""The commands that bring answers in and everything out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
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
from anneal.names import printable
from anneal.watch import Watch
from anneal.words import count

if TYPE_CHECKING:
    from anneal.campaign.campaign import Campaign
    from anneal.export.images import Catalogue
    from anneal.export.tables import Block, Schema
    from anneal.search import Results

GeoJson = Annotated[Path | None, typer.Option(help="Write the results with footprints as GeoJSON.")]
PICTURES = (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".tif", ".tiff", ".webp")  # that a panel can be
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

    imported = transfer.read_answers(Campaign.open(campaign), file)
    out.print(f"{count(imported, 'answer was', 'answers were')} imported.")


@dataclass(frozen=True)
class Wanted:
    """What an export was asked for, as given on the command line."""

    file: Path | None = None
    links: Path | None = None
    copy: bool = False
    min_score: float = 0.0
    implied: bool = False
    query: tuple[Path, ...] = ()
    k: int = 10
    geojson: Path | None = None
    gpkg: Path | None = None
    geoparquet: Path | None = None
    to: str = ""


def export(
    kind: Annotated[str, typer.Argument(help="What to write (below); or the file of answers.")],
    file: Annotated[Path | None, typer.Argument(help="Where to: a file, or a folder.")] = None,
    campaign: CampaignOption = Path("campaign"),
    links: Annotated[Path | None, typer.Option(help="Groups as folders of links to the images.")] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copies in place of links.")] = False,
    min_score: MinScore = 0.0,
    implied: Annotated[bool, typer.Option("--implied", help="Pairs that follow from answers too.")] = False,
    query: Annotated[list[Path] | None, typer.Option(help="Results: an image to search with.")] = None,
    k: K = 10,
    geojson: GeoJson = None,
    gpkg: Annotated[Path | None, typer.Option(help="A GeoPackage of results or footprints.")] = None,
    geoparquet: Annotated[Path | None, typer.Option(help="A GeoParquet file of them.")] = None,
    to: Annotated[str, typer.Option(help="Vectors: qdrant://HOST:PORT/COLLECTION.")] = "",
    device: Device = "auto",
) -> None:
    """Write groups, vectors, model, index, pairs, answers, report, results or footprints to a file.

    Example: [bold]anneal export groups groups.csv --campaign my-campaign[/]
    """
    if kind not in KINDS and Path(kind).suffix and file is None:
        file = Path(kind)
        kind = "answers"
    if kind not in KINDS:
        raise UsageError(f"There is nothing called {kind!r} to export: use {', '.join(KINDS)}.")
    use_device(device)
    maps = (geojson, gpkg, geoparquet)
    wanted = Wanted(file, links, copy, min_score, implied, tuple(query or ()), k, *maps, to)
    write, uses = KINDS[kind]
    for one in fields(Wanted):
        if getattr(wanted, one.name) != one.default and one.name not in uses.split():
            name = "A file" if one.name == "file" else f"--{one.name.replace('_', '-')}"
            raise UsageError(f"{name} does not go with {kind}: see anneal export --help.")
    from anneal.campaign.campaign import Campaign

    with progress_bars() as watch:
        said = write(Campaign.open(campaign), wanted, watch)
    out.print(escape(said), soft_wrap=True)


def _groups(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export import groups, tables

    if wanted.copy and wanted.links is None:
        raise UsageError("--copy goes with --links FOLDER.")
    if wanted.links is None:
        _place(wanted, "groups.csv")
    catalogue = _catalogue(campaign, watch, wanted.min_score)
    images = campaign.images.tolist()
    said = []
    if wanted.links is not None:
        groups.link_images(catalogue, images, wanted.links, wanted.copy, watch("linking"))
        said.append(f"{count(len(images), 'image is', 'images are')} in folders below {wanted.links}.")
    if wanted.file is not None:
        rows = tables.write(wanted.file, groups.GROUPS, groups.group_rows(catalogue, images))
        found = count(len(catalogue.classes.every), "group")
        said.append(f"{found} and {count(rows, 'image')} are in {wanted.file}.")
    return " ".join(said)


def _vectors(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export import qdrant, vectors

    if not wanted.to:
        _place(wanted, "the folder vectors")
    catalogue = _catalogue(campaign, watch)
    space = campaign.rounds.vectors()
    said = []
    if wanted.to:
        sent = qdrant.send(catalogue, space, campaign.images, wanted.to, watch("sending"))
        said.append(f"{count(sent, 'vector is', 'vectors are')} in {wanted.to}.")
    if wanted.file is not None:
        rows = vectors.write_vectors(catalogue, space, campaign.images, wanted.file, watch("writing"))
        names = f"{vectors.VECTORS_FILE} and {vectors.TABLE_FILE}"
        said.append(f"{count(rows, 'vector is', 'vectors are')} in {wanted.file}, as {names}.")
    return " ".join(said)


def _model(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export.model import write_model

    folder = _place(wanted, "the folder model")
    return f"The serving model is in {folder}: {', '.join(write_model(campaign, folder))}."


def _index(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export.vectors import write_index

    file = _place(wanted, "index.faiss")
    return f"The index ({write_index(campaign, file)}) is in {file}: row i is image i."


def _pairs(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export import pairs, tables

    file = _place(wanted, "pairs.csv")
    rows = pairs.pair_rows(campaign, campaign.archive(), wanted.implied, watch("pairing"))
    return f"{count(tables.write(file, pairs.PAIRS, rows), 'pair is', 'pairs are')} in {file}."


def _answers(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.campaign import transfer

    file = _place(wanted, "answers.csv")
    return f"{count(transfer.write_answers(campaign, file), 'answer is', 'answers are')} in {file}."


def _report(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export.report import write_report

    file = _place(wanted, "report.html")
    write_report(campaign, _catalogue(campaign, watch), file)
    return f"The report is in {file}: open it in a browser."


def _results(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export import geo, images, tables
    from anneal.search import find_similar

    if not wanted.query:
        raise UsageError("Say what to look for: --query IMAGE, more than once if you like.")
    every = find_similar(campaign, wanted.query, wanted.k, watch("searching"))
    blocks = _hits(_catalogue(campaign, watch), every)
    said = []
    if wanted.file is not None:
        schema = {**images.RESULTS, "footprint": "string"}
        rows = tables.write(wanted.file, schema, geo.as_text(blocks))
        said.append(f"{rows} results are in {wanted.file}.")
    return " ".join([*said, *_maps(wanted, images.RESULTS, lambda: blocks, needed=not said)])


def _footprints(campaign: Campaign, wanted: Wanted, watch: Watch) -> str:
    from anneal.export import images

    catalogue = _catalogue(campaign, watch, wanted.min_score)
    rows = partial(images.footprint_rows, catalogue, campaign.images)
    return " ".join(_maps(wanted, images.CLASSES, rows))


def _maps(
    wanted: Wanted, schema: Schema, blocks: Callable[[], Iterable[Block]], needed: bool = True
) -> list[str]:
    """Write the maps that are wanted, each with the rows of a new pass; what to say of each."""
    from anneal.export import geo

    files = {".geojson": wanted.geojson, ".gpkg": wanted.gpkg, ".parquet": wanted.geoparquet}
    if needed and not any(files.values()):
        raise UsageError("Name a file: --geojson map.geojson, --gpkg map.gpkg or --geoparquet map.parquet.")
    said = []
    for suffix, file in files.items():
        if file is not None and file.suffix.lower() != suffix:
            raise UsageError(f"{file}: name it {suffix}.")
        if file is not None:
            said.append(f"{geo.write(file, schema, blocks())} footprints are in {file}.")
    return said


def _catalogue(campaign: Campaign, watch: Watch, least: float = 0.0) -> Catalogue:
    from anneal.export.images import Catalogue

    made = Catalogue.of(campaign, watch("placing"))
    return replace(made, classes=made.classes.at_least(least))


def _place(wanted: Wanted, example: str) -> Path:
    if wanted.file is None:
        raise UsageError(f"Say where to write it, for example {example}.")
    return wanted.file


Write = Callable[["Campaign", Wanted, Watch], str]
KINDS: dict[str, tuple[Write, str]] = {
    "groups": (_groups, "file links copy min_score"),
    "vectors": (_vectors, "file to"),
    "model": (_model, "file"),
    "index": (_index, "file"),
    "pairs": (_pairs, "file implied"),
    "answers": (_answers, "file"),
    "report": (_report, "file"),
    "results": (_results, "file query k geojson gpkg geoparquet"),
    "footprints": (_footprints, "min_score geojson gpkg geoparquet"),
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
    from anneal.export import images, tables

    opened = Campaign.open(campaign)
    with progress_bars() as watch:
        catalogue = _catalogue(opened, watch, min_score)
    if not catalogue.classes.every:
        raise UsageError("There are no groups yet: answer questions until two images are similar.")
    rows = tables.write(file, images.CLASSES, images.footprint_rows(catalogue, opened.images))
    settled = int(catalogue.classes.settled[opened.images].sum())
    left = int((catalogue.classes.column[opened.images] < 0).sum())
    there = count(rows, "image is", "images are")
    text = f"{there} in {file}: {settled} settled by answers, {rows - settled - left} predicted"
    out.print(escape(text + (f", {left} without a group." if left else ".")), soft_wrap=True)


def search(
    images: Annotated[list[Path], typer.Argument(help="Images of the archive, or any image files.")],
    campaign: CampaignOption = Path("campaign"),
    k: K = 10,
    panel: Annotated[Path | None, typer.Option(help="Draw the results into this picture.")] = None,
    geojson: GeoJson = None,
    device: Device = "auto",
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Find the images most like an example.

    Example: [bold]anneal search photos/harbour7.jpg -k 10 --campaign my-campaign --panel found.png[/]
    """
    if as_json and as_csv:
        raise UsageError("Choose one of --json and --csv.")
    if panel is not None and panel.suffix.lower() not in PICTURES:
        raise UsageError(
            f"--panel {panel}: a picture's name ends in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}."
        )
    use_device(device)
    from anneal.campaign.campaign import Campaign
    from anneal.search import find_similar

    opened = Campaign.open(campaign)
    with progress_bars() as watch:
        every = find_similar(opened, images, k, watch("searching"))
        wants_rows = as_json or as_csv or geojson is not None
        blocks = _hits(_catalogue(opened, watch), every) if wants_rows else []
    if as_json:
        print_json(_as_json(every, blocks))
    elif as_csv:
        _print_csv(blocks)
    else:
        for results in every:
            out.print(f"[bold]{escape(printable(results.query))}[/]", soft_wrap=True)
            for path, score in zip(results.paths, results.scores, strict=True):
                out.print(f"  {score:.4f}  {escape(printable(path))}", soft_wrap=True)
    if geojson is not None:
        from anneal.export.images import RESULTS

        for said in _maps(Wanted(geojson=geojson), RESULTS, lambda: blocks):
            err.print(escape(said), soft_wrap=True)
    if panel is not None:
        _draw(every, panel)


def _hits(catalogue: Catalogue, every: list[Results]) -> list[Block]:
    from anneal.export.images import result_rows

    return list(result_rows(catalogue, every))


def _as_json(every: list[Results], blocks: list[Block]) -> list[Any]:
    names = ("path", "file", "group", "score", "footprint")
    report = []
    for results, block in zip(every, blocks, strict=True):
        hits = [{name: block[name][row] for name in names} for row in range(len(results.ids))]
        report.append({"query": printable(results.query), "results": hits})
    return report


def _print_csv(blocks: list[Block]) -> None:
    """On standard output, whatever the width of the terminal."""
    from anneal.export import geo, tables
    from anneal.export.images import RESULTS

    names = (*RESULTS, "footprint")
    rows = [row for block in geo.as_text(blocks) for row in tables.rows_of(names, block)]
    out.file.write(tables.csv_lines([names, *rows]).decode().replace("\r\n", "\n"))


def _draw(every: list[Results], panel: Path) -> None:
    from anneal.experiments import plots

    cells: list[list[Any]] = [
        [(pixels, f"{score:.3f}", None) for pixels, score in zip(found.pictures, found.scores, strict=True)]
        for found in every
    ]
    plots.panel([(found.pixels, Path(found.query).name) for found in every], cells, panel)
    err.print(f"The picture is in {escape(str(panel))}.")
