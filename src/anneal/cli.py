"""The command line. Heavy modules are imported inside the commands, so that --help is instant."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from anneal import __version__
from anneal.cli_archive import add, duplicates, relocate, update
from anneal.cli_care import backup, check, fetch, restore
from anneal.cli_experiments import demo, reproduce, simulate
from anneal.cli_export import classify, export, import_, search
from anneal.cli_finetune import finetune
from anneal.cli_label import Images, Yes, is_to_be_made, make
from anneal.console import (
    GOES_ON,
    CampaignOption,
    Device,
    Json,
    OwnStrategy,
    Ray,
    describe,
    err,
    escape,
    in_use_here,
    out,
    print_json,
    progress_bars,
    use_device,
    with_settings,
)
from anneal.errors import AnnealError, UsageError
from anneal.files import explain_disk_errors
from anneal.pairs import Verdict
from anneal.settings import Settings, refuse_unused
from anneal.words import count

if TYPE_CHECKING:
    from anneal.campaign.campaign import Campaign

app = typer.Typer(
    name="anneal", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="rich"
)


def main() -> None:
    """The entry point: a mistake of the user ends in a sentence and an exit code, not in a traceback."""
    # Threads that wait must not spin: beside other work they would slow it down, and themselves.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # Processes that this one starts take no module from the current folder, which may be a stranger's.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        with explain_disk_errors(Path("file")):
            app()
    except AnnealError as error:
        err.print(f"[bold red]anneal:[/] {escape(str(error))}")
        sys.exit(error.exit_code)
    except sqlite3.DatabaseError as error:
        err.print(f"[bold red]anneal:[/] The campaign's file is damaged ({error}): run anneal check.")
        sys.exit(1)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Turn a folder of remote-sensing images into a search engine that you teach by answering
    "are these two similar?"."""
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command()
@with_settings()
def init(
    archive: Annotated[
        Path, typer.Argument(help="A folder, a scene, STAC items, or a manifest path[,class][,split].")
    ],
    settings: Settings,
    campaign: CampaignOption = Path("campaign"),
    criterion: Annotated[str, typer.Option(help='What you mean by similar, say "same land use".')] = "",
    use_classes: Annotated[
        bool, typer.Option("--use-classes", help="Learn from class folders (or the manifest's classes) too.")
    ] = False,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out rasters if rasterio is not installed.")
    ] = False,
    device: Device = "auto",
    ray: Ray = None,
) -> None:
    """Read an archive, encode it and plan the first questions.

    Example: [bold]anneal init photos/ --campaign my-campaign[/]
    """
    use_device(device)
    refuse_unused(settings, [settings.strategy])
    if Path(settings.backbone).is_dir():
        settings = replace(settings, backbone=str(Path(settings.backbone).resolve()))
    from anneal import cluster

    with progress_bars() as watch, cluster.workers(ray) as workers:
        from anneal.archive.catalog import open_archive
        from anneal.archive.reading import Reading
        from anneal.campaign.campaign import refuse_if_made
        from anneal.campaign.turn import begin
        from anneal.method.strategies import chosen
        from anneal.network import backbones

        refuse_if_made(campaign)  # what is wrong is refused before any image is read
        chosen(settings)
        backbone = backbones.load(backbones.fetch(settings.backbone))
        images = open_archive(
            archive,
            settings.px,
            campaign / "cache",
            watch("reading"),
            reading=Reading.of(settings),
            skip_unreadable=skip_unreadable,
        )
        if use_classes and not any(images.labels):
            raise UsageError("--use-classes: there are no classes. Put the images in one folder per class.")
        made = begin(campaign, images, settings, watch, backbone=backbone, workers=workers, source=archive)
    made.store.set(criterion=criterion.strip())
    if use_classes:
        made.label((i, label) for i, label in enumerate(images.labels) if label)
    describe(images, campaign)
    if twice := len(made.retired()):
        left_out = count(twice, "image is", "images are")
        out.print(f"{left_out} left out: others show the same. anneal duplicates lists them.")
    out.print(f"[bold]{campaign}[/] is ready. Answer questions in the browser:")
    out.print(f"  anneal label --campaign {campaign}")
    out.print("Search works already, and gets better with every round:")
    out.print(f"  anneal search {escape(str(images.root / images.paths[0]))} --campaign {campaign}")


@app.command()
def label(
    archive: Images = None,
    campaign: CampaignOption = Path("campaign"),
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but this machine's own needs a token, or gets one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = 8321,
    token: Annotated[
        str,
        typer.Option(
            envvar="ANNEAL_TOKEN",
            help="A word that everyone who opens the page must know. As an option, other users of this "
            "machine can see it.",
        ),
    ] = "",
    token_file: Annotated[Path | None, typer.Option(help="A file with the token in its first line.")] = None,
    certfile: Annotated[Path | None, typer.Option(help="A TLS certificate (PEM): serve https.")] = None,
    keyfile: Annotated[Path | None, typer.Option(help="Its key, if that is in another file.")] = None,
    overlap: Annotated[
        float | None, typer.Option(help="Share of questions that two people are asked.", min=0, max=1)
    ] = None,
    criterion: Annotated[str | None, typer.Option(help="What you mean by similar.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
    yes: Yes = False,
    strategy: OwnStrategy = None,
    device: Device = "auto",
) -> None:
    """Answer "are these two similar?" in the browser, while the machine learns beside it.

    Example: [bold]anneal label photos/ --campaign my-campaign[/]
    """
    use_device(device)
    from anneal.web import serve

    is_first = is_to_be_made(archive, campaign, yes, strategy)

    def opened() -> Campaign:
        made = _open_to_label(campaign, strategy, overlap, criterion)
        if is_first:
            describe(made.archive(), campaign)
        return made

    def ready(address: str) -> None:
        out.print(f"The page is at [bold]{escape(address)}[/]  (ctrl-c ends it)", soft_wrap=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(serve.without_token(address, Path(private)))

    if keyfile is not None and certfile is None:
        raise UsageError("--keyfile is for a certificate: give --certfile too.")
    certificate = None if certfile is None else serve.Certificate(certfile, keyfile)
    word = token if token_file is None else serve.read_token(token_file)
    making = serve.Making(archive, campaign, progress_bars, opened) if is_first and archive else None
    with suppress(KeyboardInterrupt), TemporaryDirectory() as private:
        serve.serve(making or opened(), host, port, word, ready, certificate)
    kept = "Every answer is kept." if making is None or making.is_made else GOES_ON
    out.print(f"Stopped. {kept}")


def _open_to_label(
    folder: Path, strategy: str | None, overlap: float | None, criterion: str | None
) -> Campaign:
    """A campaign that people may answer in, with what they said about it on the command line."""
    from anneal.campaign import trust
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(folder, strategy)
    trust.refuse_unusable(opened)
    if overlap is not None:
        opened.store.set(overlap=overlap)
    if criterion is not None:
        opened.store.set(criterion=criterion.strip())
    return opened


app.command(hidden=True)(make)


@app.command(hidden=True)
def worker(campaign: CampaignOption = Path("campaign"), strategy: OwnStrategy = None) -> None:
    """The machine's process, as long as standard input is open; anneal label starts it."""
    from anneal.campaign import worker as machine

    machine.run(campaign, strategy)


@app.command("round")
def round_(
    campaign: CampaignOption = Path("campaign"),
    strategy: OwnStrategy = None,
    device: Device = "auto",
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Take one machine's turn: learn from every answer so far and plan the next questions.

    Example: [bold]anneal round --campaign my-campaign[/]
    """
    use_device(device)
    from anneal import cluster
    from anneal.campaign import heldout, progress, trust
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(campaign, strategy)
    trust.refuse_unusable(opened)
    if "RANK" in os.environ:  # torchrun or accelerate has set it
        from anneal.campaign.turn import assist
        from anneal.network.processes import is_helper

        if is_helper():
            return assist(opened)
    with in_use_here(campaign), progress_bars() as watch, cluster.workers(ray) as workers:
        from anneal.campaign.turn import turn

        turn(opened, watch=watch, workers=workers)
    standing = progress.standing(opened)
    record = opened.rounds.records()[-1]
    if as_json:
        return print_json({**asdict(standing), "threshold": record.threshold, "seconds": record.seconds})
    _print_contradictions(opened)
    known = f"{count(standing.answers, 'answer')} and {count(standing.implied, 'pair')} they imply"
    out.print(f"Round {record.number}: learnt from {known} in {sum(record.seconds.values()):.0f} s.")
    if refusal := heldout.refusal(opened):
        out.print(refusal, soft_wrap=True)
    return None


def _print_contradictions(campaign: Campaign) -> None:
    paths = campaign.archive().paths
    for rows in campaign.contradictions()[:5]:
        err.print("[yellow]These answers cannot all be true[/]; change one of them:")
        for row in rows:
            verdict = Verdict(row.verdict).name.lower()
            err.print(f"  {escape(paths[row.a])} and {escape(paths[row.b])}: {verdict}")


@app.command()
def status(
    campaign: CampaignOption = Path("campaign"),
    stop_below: Annotated[
        float | None, typer.Option(help="Advise to stop if 50 answers bring fewer points of P@5 than this.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how far a campaign is.

    Example: [bold]anneal status --campaign my-campaign[/]
    """
    from anneal.campaign import guidance, heldout, progress
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(campaign)
    if stop_below is not None:
        guidance.set_stop_below(opened, stop_below)
    standing = progress.standing(opened)
    models = heldout.models(opened) if standing.heldout else []
    advice = guidance.guide(opened, models) if opened.settings.heldout else None
    told: dict[str, Any] = {
        "archive": {"root": str(opened.root), **progress.archive(opened)},
        "missing": _missing(opened),
        "models": [asdict(model) for model in models],
        "advice": None if advice is None else asdict(advice),
        "people": progress.people(opened),
        "agreement": progress.agreement(opened),
        "serving": opened.rounds.serving,
        "refusal": heldout.refusal(opened),
        "machine": progress.machine(opened),
    }
    if as_json:
        return print_json({**asdict(standing), **told})
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in asdict(standing).items():
        shown = f"{value:.0%} similar of the latest" if isinstance(value, float) else value
        table.add_row(name, "–" if shown is None else str(shown))
    out.print(table)
    if told["refusal"]:
        out.print(told["refusal"], soft_wrap=True)
    if advice is not None:
        out.print(advice.text, soft_wrap=True)
    for pair in told["agreement"]:
        kappa = "–" if pair["kappa"] is None else f"{pair['kappa']:.2f}"
        share = f"{pair['agreement']:.0%} of {count(pair['pairs'], 'pair')}"
        out.print(f"{escape(pair['one'])} and {escape(pair['other'])} agree on {share}, κ = {kappa}")
    machine = told["machine"]
    busy = f" ({machine['done']} of {machine['total']})" if machine["state"] == "learning" else ""
    out.print(escape(machine["text"] + busy), soft_wrap=True)
    _print_archive(told["archive"]["lines"], told["missing"])
    return None


def _missing(campaign: Campaign) -> list[str]:
    """Paths of images that count and whose file is gone."""
    archive = campaign.archive()
    gone = set(archive.missing())
    return [archive.paths[i] for i in campaign.live.tolist() if archive.paths[i] in gone]


def _print_archive(lines: list[str], missing: list[str]) -> None:
    """What became of the images, and what to do about those that are gone."""
    for line in lines:
        out.print(escape(line), soft_wrap=True)
    if missing:
        names = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        err.print(
            f"[yellow]{count(len(missing), 'file is', 'files are')} gone from the archive[/] "
            f"({escape(names)}): what was stored of them is still searched and asked about. Retire them with "
            "anneal update or, if the archive was moved, say where it is with anneal relocate."
        )


OTHERS = (
    finetune,
    *(add, update, relocate, duplicates),
    *(export, classify, search),
    *(check, backup, restore, fetch),
    *(simulate, reproduce, demo),
)
app.command("import")(import_)
for command in OTHERS:
    app.command()(command)
