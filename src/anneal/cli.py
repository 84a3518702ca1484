"""The command line. Heavy modules are imported inside the commands, so that --help is instant."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from anneal import __version__
from anneal.errors import AnnealError

if TYPE_CHECKING:
    from anneal.archive.catalog import Archive
    from anneal.campaign.campaign import Campaign
    from anneal.campaign.turn import Watch

app = typer.Typer(
    name="anneal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Turn a folder of remote-sensing images into a search engine that you teach by answering "
    '"are these two similar?".',
)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

# -- options that several commands share ---------------------------------------------------------

CampaignOption = Annotated[Path, typer.Option("--campaign", help="The campaign's folder.")]
BackboneOption = Annotated[
    str,
    typer.Option(
        help="efficientnet-lite0 (installed), resnet-18, a hub id, a model's folder, or random:NAME."
    ),
]
HeadOption = Annotated[
    str, typer.Option(help="anchored (starts near the frozen features) or paper (starts at random).")
]
DepthOption = Annotated[str, typer.Option(help="What is trained: head, last (stage too) or full.")]
ViewsOption = Annotated[int, typer.Option(help="Quarter turns whose features are averaged, 1 to 4.")]
PxOption = Annotated[int, typer.Option(help="Images are scaled to PX × PX.")]
StrategyHelp = (
    "What to ask: place, mgue, bcgue, random, module:function; in simulate also cal, cal-metric, typiclust, "
    "coreset."
)
LossOption = Annotated[str, typer.Option(help="mix, contrastive (the paper's) or ntxent.")]
ClosureOption = Annotated[str, typer.Option(help="What answers imply: full, single (the paper's) or none.")]
DiversityOption = Annotated[str, typer.Option(help="kmeans (the paper's) or none.")]
LambdaOption = Annotated[float, typer.Option("--lambda", help="λ in MGUE's threshold.")]
RecipeOption = Annotated[str, typer.Option(help="How the network is trained: anneal or paper.")]
RestartOption = Annotated[
    str,
    typer.Option(help="Each round trains on from the last (warm), or from the pretrained weights (cold)."),
]
ShareOption = Annotated[
    float, typer.Option(help="Share of similar answers MGUE aims at, give or take 0.2; 0: the paper's MGUE.")
]
ThresholdOption = Annotated[
    str, typer.Option(help="MGUE's threshold: moments (the paper's) or logistic (by the answers alone).")
]
RecheckOption = Annotated[
    float, typer.Option(help="An answer that the model gave less chance than this is asked again; 0: never.")
]
PresumeOption = Annotated[
    float, typer.Option(help="Train on images whose group is at least this likely too; 0: on none.")
]
SpaceOption = Annotated[
    str, typer.Option(help="Where pairs are compared to be asked: search, backbone, head.")
]
SeedOption = Annotated[int, typer.Option(help="Determines every random choice.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for a script to read.")]


def main() -> None:
    """The entry point: a person's mistake ends in a sentence and an exit code, not in a traceback."""
    # Threads that wait must not spin: beside any other work they would starve it, and themselves.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except AnnealError as error:
        err.print(f"[bold red]anneal:[/] {_escape(str(error))}")
        sys.exit(error.exit_code)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


@app.command()
def init(
    archive: Annotated[Path, typer.Argument(help="A folder of images, or a manifest path[,class][,split].")],
    campaign: CampaignOption = Path("campaign"),
    backbone: BackboneOption = "efficientnet-lite0",
    depth: DepthOption = "head",
    head: HeadOption = "anchored",
    views: ViewsOption = 2,
    px: PxOption = 224,
    strategy: Annotated[str, typer.Option(help=StrategyHelp)] = "place",
    per_round: Annotated[int, typer.Option(help="Questions a round.")] = 100,
    loss: LossOption = "mix",
    closure: ClosureOption = "full",
    diversity: DiversityOption = "kmeans",
    lam: LambdaOption = 3.0,
    restart: RestartOption = "warm",
    share: ShareOption = 0.5,
    threshold: ThresholdOption = "moments",
    recheck: RecheckOption = 0.15,
    presume: PresumeOption = 0.3,
    audit: Annotated[
        float, typer.Option(help="Of the questions: drawn at random, to measure with; not learnt from.")
    ] = 0.1,
    criterion: Annotated[str, typer.Option(help='What you mean by similar, say "same land use".')] = "",
    use_classes: Annotated[
        bool, typer.Option("--use-classes", help="Learn from class folders (or the manifest's classes) too.")
    ] = False,
    seed: SeedOption = 0,
) -> None:
    """Read an archive, encode it and queue the first questions.

    Example: [bold]anneal init photos/ --campaign my-campaign[/]
    """
    from anneal.errors import UsageError
    from anneal.settings import Plan

    network = str(Path(backbone).resolve()) if Path(backbone).is_dir() else backbone  # wherever one stands
    plan = Plan(
        backbone=network,
        depth=depth,
        head=head,
        views=views,
        px=px,
        strategy=strategy,
        per_round=per_round,
        closure=closure,
        diversity=diversity,
        lam=lam,
        loss=loss,
        restart=restart,
        share=share,
        threshold=threshold,
        recheck=recheck,
        presume=presume,
        audit=audit,
        seed=seed,
    )
    with _bars() as watch:
        from anneal.campaign import turn

        found = _open_archive(archive, px, campaign / "cache", watch)
        if use_classes and not any(found.labels):
            raise UsageError("--use-classes: there are no classes. Put the images in one folder a class.")
        made = turn.begin(campaign, found, plan, watch)
    made.store.set(criterion=criterion.strip())
    if use_classes:
        made.label((i, label) for i, label in enumerate(found.labels) if label)
    _describe(found)
    out.print(f"[bold]{campaign}[/] is ready: {_queued(made, 'questions')} Answer them in the browser:")
    out.print(f"  anneal label --campaign {campaign}")
    out.print("Search works already, and gets better with every round:")
    out.print(f"  anneal search {_escape(str(found.root / found.paths[0]))} --campaign {campaign}")


@app.command()
def label(
    campaign: CampaignOption = Path("campaign"),
    host: Annotated[str, typer.Option(help="Where to listen; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = 8321,
    token: Annotated[
        str, typer.Option(envvar="ANNEAL_TOKEN", help="A word that whoever opens the page must know.")
    ] = "",
    overlap: Annotated[
        float | None, typer.Option(help="Share of questions that two people are asked.", min=0, max=1)
    ] = None,
    criterion: Annotated[str | None, typer.Option(help="What you mean by similar.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
) -> None:
    """Answer "are these two similar?" in the browser, while the machine learns beside it.

    Example: [bold]anneal label --campaign my-campaign[/]
    """
    from anneal.campaign.campaign import Campaign
    from anneal.web import serve

    opened = Campaign.open(campaign)
    if overlap is not None:
        opened.store.set(overlap=overlap)
    if criterion is not None:
        opened.store.set(criterion=criterion.strip())

    def ready(address: str) -> None:
        out.print(f"The page is at [bold]{_escape(address)}[/]  (ctrl-c ends it)", soft_wrap=True)
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    with suppress(KeyboardInterrupt):
        serve.serve(opened, host, port, token, ready)
    out.print("Stopped. Every answer is kept.")


@app.command(hidden=True)
def worker(campaign: CampaignOption = Path("campaign")) -> None:
    """The machine's turns, for as long as standard input is open; anneal label starts it."""
    from anneal.campaign import worker as machine

    machine.run(campaign)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="CSV or JSON lines: a, b, verdict[, annotator].")],
    campaign: CampaignOption = Path("campaign"),
) -> None:
    """Take in answers that were given elsewhere: all of them, or none if a line is wrong.

    Example: [bold]anneal import answers.csv --campaign my-campaign[/]
    """
    from anneal.campaign import transfer
    from anneal.campaign.campaign import Campaign

    taken = transfer.take_in(Campaign.open(campaign), file)
    out.print(f"{taken} answers were taken in.")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="The file to write: .csv or .jsonl.")],
    campaign: CampaignOption = Path("campaign"),
) -> None:
    """Write the answers that stand, in the form that import reads.

    Example: [bold]anneal export answers.csv --campaign my-campaign[/]
    """
    from anneal.campaign import transfer
    from anneal.campaign.campaign import Campaign

    written = transfer.write_out(Campaign.open(campaign), file)
    out.print(f"{written} answers are in {_escape(str(file))}.")


@app.command("round")
def round_(campaign: CampaignOption = Path("campaign"), as_json: JsonOption = False) -> None:
    """Take one machine's turn: learn from every answer so far and queue the next questions.

    Example: [bold]anneal round --campaign my-campaign[/]
    """
    from filelock import FileLock, Timeout

    from anneal.campaign import judging, progress
    from anneal.campaign.campaign import WORKER_LOCK, Campaign
    from anneal.errors import UsageError

    opened = Campaign.open(campaign)
    try:
        with FileLock(campaign / WORKER_LOCK, timeout=0), _bars() as watch:
            from anneal.campaign import turn
            from anneal.network import backbones

            learned = turn.turn(opened, backbones.load(opened.plan.backbone), watch)
    except Timeout:
        raise UsageError(
            "anneal label is open on this campaign and takes the machine's turns itself: end it first."
        ) from None
    standing = progress.standing(opened)
    for number, contradiction in enumerate(learned.closure.contradictions):
        if number < 5 and not as_json:
            _print_contradiction(opened, contradiction.rows)
    if as_json:
        report = {**asdict(standing), "alpha": learned.alpha, "seconds": learned.seconds}
        return out.print_json(json.dumps(report))
    taken = sum(learned.seconds.values())
    out.print(
        f"Round {standing.rounds}: learnt from {standing.answers} answers and {standing.implied} pairs they "
        f"imply in {taken:.0f} s; {_queued(opened, 'new questions')}"
    )
    if refusal := judging.refusal(opened):
        out.print(refusal, soft_wrap=True)
    return None


@app.command()
def status(campaign: CampaignOption = Path("campaign"), as_json: JsonOption = False) -> None:
    """Say how far a campaign is.

    Example: [bold]anneal status --campaign my-campaign[/]
    """
    from anneal.campaign import judging, progress
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(campaign)
    standing = progress.standing(opened)
    missing = opened.archive().missing()
    models = [asdict(model) for model in judging.models(opened)] if standing.held_back else []
    agreement, machine = progress.agreement(opened), progress.machine(opened)
    refusal = judging.refusal(opened)
    if as_json:
        told: dict[str, Any] = {
            "missing": missing,
            "models": models,
            "people": progress.people(opened),
            "agreement": agreement,
        }
        told |= {"serving": opened.serving(), "refusal": refusal, "machine": machine}
        return out.print_json(json.dumps({**asdict(standing), **told}))
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in asdict(standing).items():
        shown = f"{value:.0%} similar of the latest" if isinstance(value, float) else value
        table.add_row(name.replace("_", " "), "–" if shown is None else str(shown))
    out.print(table)
    if refusal:
        out.print(refusal, soft_wrap=True)
    serving = [model["p5"] for model in models if model["round"] == opened.serving()]
    for p5 in serving:
        out.print(
            f"P@5 of the model in service: {p5['value']:.2f} ({p5['low']:.2f} to {p5['high']:.2f}, 95 %)"
        )
        out.print(judging.advice(opened, judging.models(opened))[1])
    for pair in agreement:
        kappa = "–" if pair["kappa"] is None else f"{pair['kappa']:.2f}"
        out.print(
            f"{_escape(pair['one'])} and {_escape(pair['other'])} agree on {pair['agreement']:.0%} of "
            f"{pair['pairs']} pairs, κ = {kappa}"
        )
    busy = f" ({machine['done']} of {machine['total']})" if machine["state"] == "learning" else ""
    out.print(_escape(machine["text"] + busy), soft_wrap=True)
    if missing:
        names = ", ".join(missing[:3]) + (" …" if len(missing) > 3 else "")
        err.print(
            f"[yellow]{len(missing)} files are gone from the archive since init[/] ({_escape(names)}): "
            "what was kept of them is still searched and asked about."
        )
    return None


@app.command()
def search(
    images: Annotated[list[Path], typer.Argument(help="Images of the archive, or any image files.")],
    campaign: CampaignOption = Path("campaign"),
    k: Annotated[int, typer.Option("-k", help="How many results.", min=1)] = 10,
    panel: Annotated[Path | None, typer.Option(help="Draw the results into this picture.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the images most like an example.

    Example: [bold]anneal search photos/harbour7.jpg -k 10 --campaign my-campaign --panel found.png[/]
    """
    from anneal import search
    from anneal.campaign.campaign import Campaign

    opened = Campaign.open(campaign)
    archive = opened.archive()
    with _bars() as watch:
        found = search.search(opened, archive, images, k, watch("searching"))
    listed = [[(archive.paths[i], s) for i, s in zip(hit.ids, hit.scores, strict=True)] for hit in found]
    if as_json:
        report = [
            {"query": hit.name, "results": [{"path": path, "score": round(s, 6)} for path, s in results]}
            for hit, results in zip(found, listed, strict=True)
        ]
        out.print_json(json.dumps(report))
    else:
        for hit, results in zip(found, listed, strict=True):
            out.print(f"[bold]{_escape(hit.name)}[/]", soft_wrap=True)
            for path, score in results:
                out.print(f"  {score:.4f}  {_escape(path)}", soft_wrap=True)
    if panel is not None:
        from anneal.experiments import plots

        cells = [
            [(archive.pixels[i], f"{s:.3f}", None) for i, s in zip(hit.ids, hit.scores, strict=True)]
            for hit in found
        ]
        plots.panel([(hit.pixels, Path(hit.name).name) for hit in found], cells, panel)
        err.print(f"The picture is in {_escape(str(panel))}.")


@app.command()
def simulate(
    archive: Annotated[Path, typer.Argument(help="Images in one folder a class, or a manifest.")],
    strategy: Annotated[
        str, typer.Option(help=StrategyHelp + " Several, with commas.")
    ] = "place,mgue,random",
    rounds: Annotated[int, typer.Option(help="Rounds after the first questions.")] = 5,
    per_round: Annotated[int, typer.Option(help="Bits a round.")] = 369,
    initial: Annotated[str, typer.Option(help="cold, or labelled:N: class labels for N images.")] = "cold",
    noise: Annotated[float, typer.Option(help="Share of the oracle's answers that are wrong.")] = 0.0,
    trials: Annotated[int, typer.Option(help="Repeat with seeds SEED, SEED + 1, …")] = 1,
    seed: SeedOption = 0,
    backbone: BackboneOption = "efficientnet-lite0",
    depth: DepthOption = "head",
    head: HeadOption = "anchored",
    views: ViewsOption = 2,
    loss: LossOption = "mix",
    closure: ClosureOption = "full",
    diversity: DiversityOption = "kmeans",
    lam: LambdaOption = 3.0,
    space: SpaceOption = "search",
    recipe: RecipeOption = "anneal",
    restart: RestartOption = "warm",
    share: ShareOption = 0.5,
    threshold: ThresholdOption = "moments",
    recheck: RecheckOption = 0.15,
    presume: PresumeOption = 0.3,
    px: PxOption = 224,
    folder: Annotated[Path, typer.Option("--out", help="Where the curve goes.")] = Path("runs/simulate"),
    cache: Annotated[
        Path | None, typer.Option(help="Where pixels and features are kept [ANNEAL_CACHE].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Play a campaign with an oracle that knows the classes, and draw the learning curve.

    Stopped, it goes on where it was when the same command is given again.

    Example: [bold]anneal simulate UCMerced/ --strategy mgue,random --initial labelled:84 --trials 3[/]
    """
    from anneal.settings import Plan

    plan = Plan(
        backbone=backbone,
        depth=depth,
        head=head,
        views=views,
        px=px,
        per_round=per_round,
        closure=closure,
        diversity=diversity,
        lam=lam,
        space=space,
        loss=loss,
        recipe=recipe,
        restart=restart,
        share=share,
        threshold=threshold,
        recheck=recheck,
        presume=presume,
        seed=seed,
    )
    names = tuple(name.strip() for name in strategy.split(","))
    with _bars() as watch:
        from anneal.experiments import play as simulation
        from anneal.network import backbones

        played = simulation.Simulation(plan, names, rounds, trials, initial, noise)
        found = _open_archive(archive, px, cache or _cache(), watch)
        simulation.Truth.of(found)  # says so before anything is encoded if there are no classes
        if not as_json:
            _describe(found)
        stage = simulation.Stage.of(found, backbones.load(backbone), plan, watch)
        rows = simulation.simulate(stage, played, folder, watch, simulation.untold if as_json else _tell)
    if as_json:
        out.print_json(json.dumps(rows))
    else:
        out.print(f"The curve is in {folder / 'curve.csv'} and {folder / 'curve.png'}.")


@app.command()
def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(help="lambda, diversity, comparison, panels, all, choices; or beyond, noise, parts."),
    ],
    archive: Annotated[str, typer.Option(help="Whose settings: ucmerced or aid.")] = "ucmerced",
    data: Annotated[Path | None, typer.Option(help="The archive's folder, one folder a class.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where everything goes.")] = Path("runs/reproduce"),
    mode: Annotated[
        str, typer.Option(help="ours (the defaults) or paper (its network and training).")
    ] = "ours",
    trials: Annotated[int | None, typer.Option(help="Repeat with seeds SEED, SEED + 1, … [3]", min=1)] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds after the first labels.", min=0)] = None,
    per_round: Annotated[int | None, typer.Option(help="Bits a round; on UC-Merced 369, or 336.")] = None,
    only: Annotated[str, typer.Option(help="Some of the experiment's players, with commas.")] = "",
    jobs: Annotated[int, typer.Option(help="Trials played side by side.", min=1)] = os.cpu_count() or 1,
    seed: SeedOption = 0,
    backbone: Annotated[str | None, typer.Option(help="In place of the mode's own.")] = None,
    depth: Annotated[str | None, typer.Option(help="In place of the mode's own.")] = None,
    px: Annotated[int | None, typer.Option(help="In place of the mode's own.")] = None,
    kind: Annotated[
        str | None, typer.Option("--class", help="Of the query in panels; else the paper's.")
    ] = None,
    bits: Annotated[int | None, typer.Option(help="Budget of panels; else the paper's.", min=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes on a small drawn archive.")] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Where pixels and features are kept [ANNEAL_CACHE].")
    ] = None,
) -> None:
    """Redo the paper's experiments: curves, figures, and tables that set ours beside the paper's.

    Stopped, it goes on where it was when the same command is given again. [bold]choices[/] measures what the
    paper leaves open, on the training images alone.

    Example: [bold]anneal reproduce comparison --archive ucmerced --data UCMerced/ --out runs/ucmerced[/]
    """
    from anneal.errors import UsageError

    if data is None and not quick:
        raise UsageError(
            "Give --data FOLDER with the archive's images, or --quick for a small drawn archive."
        )
    with _bars() as watch:
        from anneal.experiments import paper as again
        from anneal.experiments import scenes

        preset = again.preset(archive if data else "demo", kind, bits)
        cold = experiment in again.COLD
        if cold and (mode != "ours" or depth is not None):
            raise UsageError(f"{experiment} is played with the defaults: leave out --mode and --depth.")
        bits_a_round = per_round or (preset.step if cold else None)
        plan = again.settings(mode, preset, seed, backbone, depth=depth, px=px, per_round=bits_a_round)
        length = 2 if quick else preset.steps if cold else preset.rounds
        source = data or scenes.drawn(folder / "archive", 20, seed, plan.px)
        found = _open_archive(source, plan.px, cache or _cache(), watch)
        _describe(found)
        again.experiment(
            experiment,
            found,
            preset,
            plan,
            folder,
            rounds=length if rounds is None else rounds,
            trials=trials or (1 if quick else preset.trials),
            jobs=jobs,
            only=[name.strip() for name in only.split(",") if name.strip()],
            watch=watch,
            tell=_tell,
        )
    out.print((folder / "report.md").read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    out.print(f"Curves, figures, splits and this report are in {folder}.")


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where everything goes.")] = Path("demo"),
    seed: SeedOption = 0,
) -> None:
    """See the whole thing work on a small drawn archive: no data, no network, no labels of yours.

    Example: [bold]anneal demo --out demo[/]
    """
    out.print(
        "These scenes are [bold]drawn, not real imagery[/]: they show how a campaign runs, not how good it "
        "is on your archive.\n"
    )
    rows: list[dict[str, Any]] = []

    def tell(row: dict[str, Any]) -> None:
        rows.append(row)
        _tell(row)

    with _bars() as watch:
        from anneal.experiments import demo as demonstration

        demonstration.run(folder, seed, watch, tell)
    _chart(rows)
    out.print(f"\nThe curve:      {folder / 'curve.png'}")
    out.print(f"Search results: {folder / 'retrieval.png'} (before and after; wrong ones framed red)")
    out.print("\nNext, with images of your own:")
    out.print("  anneal init FOLDER --campaign my-campaign      read them and queue the first questions")
    out.print("  anneal label --campaign my-campaign            answer in the browser")
    out.print("  anneal search IMAGE --campaign my-campaign     find its look-alikes")
    out.print("  anneal simulate FOLDER                         a curve, if they lie in class folders")


# -- what the commands share -------------------------------------------------------------------


def _queued(campaign: Campaign, questions: str) -> str:
    if campaign.one_by_one:
        return f"{questions} are made one by one, each in the light of your answers."
    from anneal.campaign import progress

    return f"{progress.standing(campaign).queued} {questions} are queued."


def _tell(row: dict[str, Any]) -> None:
    share = f"{row['similar_share']:4.0%} similar" if row["similar_share"] != "" else ""
    out.print(
        f"{row['strategy']:>8} trial {row['trial']} round {row['round']}: {row['bits']:5d} bits  "
        f"mAP@5 {row['map5_min']:.3f}  {share:12}  {row['seconds']:5.1f} s",
        soft_wrap=True,
    )


def _open_archive(source: Path, px: int, cache: Path, watch: Watch) -> Archive:
    from anneal.archive.catalog import open_archive

    return open_archive(source, px, cache, watch("reading"))


def _describe(archive: Archive) -> None:
    classes = len({label for label in archive.labels if label})
    out.print(f"{len(archive)} images" + (f" in {classes} classes." if classes else "."))
    if archive.skipped:
        err.print(f"[yellow]{len(archive.skipped)} files could not be read and are left out:[/]")
        for path, why in archive.skipped[:10]:
            err.print(f"  {_escape(path)}: {_escape(why)}")
        if len(archive.skipped) > 10:
            err.print(f"  … and {len(archive.skipped) - 10} more")
    if archive.duplicates:
        err.print(f"[yellow]{len(archive.duplicates)} groups of files have the same content[/], for example")
        err.print("  " + _escape(" = ".join(archive.paths[i] for i in archive.duplicates[0])))


def _print_contradiction(campaign: Campaign, rows: tuple[int, ...]) -> None:
    archive, evidence = campaign.archive(), campaign.evidence()
    err.print("[yellow]These answers cannot all be true[/]; change one of them:")
    for row in rows:
        a, b = int(evidence.pairs.a[row]), int(evidence.pairs.b[row])
        verdict = "similar" if evidence.verdicts[row] == 1 else "dissimilar"
        err.print(f"  {_escape(archive.paths[a])} and {_escape(archive.paths[b])}: {verdict}")


def _chart(rows: list[dict[str, Any]]) -> None:
    """The curve as bars of text."""
    out.print("\nmAP@5 by bits of annotation:")
    for name in dict.fromkeys(row["strategy"] for row in rows):
        for row in (row for row in rows if row["strategy"] == name):
            bar = "█" * round(40 * row["map5_min"])
            out.print(f"  {name:>7} {row['bits']:5d}  {bar} {row['map5_min']:.3f}")


@contextmanager
def _bars() -> Iterator[Watch]:
    """Progress bars on standard error, one line a step; gone when the work is done."""
    columns = (TextColumn("{task.description:>10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
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
            raise _StoppedError("Stopped. Give the same command again: it goes on where it was.") from None


class _StoppedError(AnnealError):
    exit_code = 130


def _cache() -> Path:
    home = os.environ.get("ANNEAL_CACHE")
    return Path(home) if home else Path.home() / ".cache" / "anneal"


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
