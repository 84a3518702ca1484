"""The commands that play experiments. Heavy modules are imported inside them, so that --help is instant."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from anneal.console import (
    Device,
    Json,
    Ray,
    describe,
    err,
    escape,
    out,
    print_json,
    print_row,
    progress_bars,
    use_device,
    with_settings,
)
from anneal.errors import UsageError
from anneal.settings import Settings, refuse_unused
from anneal.watch import Watch

if TYPE_CHECKING:
    from anneal.archive.catalog import Archive

Jobs = Annotated[int, typer.Option(help="Trials played side by side; a cluster has one on each CPU.", min=1)]
Cache = Annotated[Path | None, typer.Option(help="Where pixels and features are stored [ANNEAL_CACHE].")]
Seed = Annotated[int, typer.Option(help="Determines every random choice.")]
EXPERIMENTS = (
    "comparison, lambda, diversity, panels, all, choices, beyond, sheets, noise, parts, anchors, finetune."
)
Mode = Annotated[str, typer.Option(help="ours (the defaults) or paper (its network and training).")]
HeldOut = Annotated[float | None, typer.Option(help="Share of held-out questions, as a person has them [0].")]
OwnText = Annotated[str | None, typer.Option(help="In place of the mode's own.")]
OwnNumber = Annotated[int | None, typer.Option(help="In place of the mode's own.")]
SecondsPerAct = Annotated[float, typer.Option(help="How long a key press takes a person.", min=0)]
SecondsPerLabel = Annotated[float, typer.Option(help="How long a class label takes.", min=0)]
Report = Annotated[bool, typer.Option("--report", help="Score the test images, and note the run in a log.")]
Trials = Annotated[int | None, typer.Option(help="Repeat with seeds SEED, SEED + 1, … [3]", min=1)]
JOBS = os.cpu_count() or 1


@with_settings(strategy="place,mgue,random", per_round=369)
def simulate(
    archive: Annotated[Path, typer.Argument(help="Images in one folder per class, or a manifest.")],
    settings: Settings,
    rounds: Annotated[int, typer.Option(help="Rounds after the first.")] = 5,
    start: Annotated[str, typer.Option(help="cold, or labelled:N: class labels for N images.")] = "cold",
    noise: Annotated[float, typer.Option(help="Share of the oracle's answers that are wrong.")] = 0.0,
    overlooked: Annotated[
        float, typer.Option(help="Share of the wrong guesses on sheets it does not see.")
    ] = 0.0,
    trials: Annotated[int, typer.Option(help="Repeat with seeds SEED, SEED + 1, …", min=1)] = 1,
    jobs: Jobs = JOBS,
    folder: Annotated[Path, typer.Option("--out", help="Where the curve goes.")] = Path("runs/simulate"),
    report: Report = False,
    cache: Cache = None,
    device: Device = "auto",
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Play a campaign with an oracle that knows the classes, and draw the learning curve.

    --strategy takes several, with commas: place, mgue, bcgue, random, cobra, pfma, module:name, and cal,
    cal-metric, typiclust, coreset, which ask for classes. They are scored on training images, split anew;
    with --report on test images. The same command, given again, goes on where it was stopped.

    Example: [bold]anneal simulate UCMerced/ --strategy mgue,random --start labelled:84 --trials 3[/]
    """
    use_device(device)
    names = [name.strip() for name in settings.strategy.split(",")]
    if len(set(names)) < len(names):
        raise UsageError("--strategy names one strategy twice.")
    refuse_unused(settings, names)
    from anneal import cluster

    with progress_bars() as watch, cluster.workers(ray) as workers:
        from anneal.experiments import paper
        from anneal.experiments.oracle import Oracle
        from anneal.experiments.play import Player
        from anneal.experiments.runner import untold

        players = {}
        for name in names:
            own = replace(settings, strategy=name)
            players[name] = Player(own, rounds, start, noise, overlooked, paper.training_of(name))
        images = _read(archive, settings, cache, watch)
        Oracle.of(images)  # refuses an archive without classes before anything is encoded
        if not as_json:
            describe(images)
        tell = untold if as_json else print_row
        rows = paper.simulate(
            images, players, folder, trials=trials, jobs=jobs, watch=watch, tell=tell, workers=workers,
            report=_log(report, folder, err if as_json else out),
        )  # fmt: skip
    if as_json:
        print_json([{name: _number_or_text(value) for name, value in row.items()} for row in rows])
    else:
        out.print(f"The curve is in {folder / 'curve.csv'} and {folder / 'curve.png'}.", soft_wrap=True)


def reproduce(
    experiment: Annotated[str, typer.Argument(help=EXPERIMENTS)],
    archive: Annotated[str, typer.Option(help="Whose settings: ucmerced or aid.")] = "ucmerced",
    data: Annotated[Path | None, typer.Option(help="The archive's folder, one folder per class.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where everything goes.")] = Path("runs/reproduce"),
    mode: Mode = "ours",
    trials: Trials = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds after the first labels.", min=0)] = None,
    per_round: Annotated[int | None, typer.Option(help="Bits a round; on UC-Merced 369, or 336.")] = None,
    heldout: HeldOut = None,
    only: Annotated[str, typer.Option(help="Some of the experiment's players, with commas.")] = "",
    jobs: Jobs = JOBS,
    seed: Seed = 0,
    backbone: OwnText = None,
    depth: OwnText = None,
    px: OwnNumber = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few minutes on a small drawn archive.")] = False,
    report: Report = False,
    seconds_per_act: SecondsPerAct = 1.2,
    seconds_per_label: SecondsPerLabel = 4.4,
    cache: Cache = None,
    device: Device = "auto",
    ray: Ray = None,
) -> None:
    """Redo the paper's experiments: curves, figures, and tables that set ours beside the paper's.

    beyond and those after it start from nothing, with the product's settings. choices measures what the paper
    leaves open. All are scored on training images, split anew, so that settings can be chosen by them; with
    --report on test images. The same command, given again, goes on where it was stopped.

    Example: [bold]anneal reproduce comparison --archive ucmerced --data UCMerced/ --report[/]
    """
    use_device(device)
    if data is None and not quick:
        raise UsageError("Give --data FOLDER with the archive's images, or --quick for a drawn archive.")
    from anneal import cluster

    with progress_bars() as watch, cluster.workers(ray) as workers:
        from anneal.experiments import curves, paper, scenes

        preset = paper.preset(archive if data else "demo")
        cold = experiment in paper.COLD
        changed = {"backbone": backbone, "depth": depth, "px": px, "per_round": per_round, "heldout": heldout}
        if cold and (mode != "ours" or depth is not None):
            raise UsageError(f"{experiment} is played with the defaults: leave out --mode and --depth.")
        settings, training = paper.settings_of(mode, preset, cold, seed=seed, **changed)
        if rounds is None:
            rounds = 2 if quick else preset.cold_rounds if cold else preset.rounds
        trials = trials or (1 if quick else preset.trials)
        source = data or scenes.drawn(folder / "archive", 20, seed, settings.px)
        images = _read(source, settings, cache, watch)
        describe(images)
        log = _log(report, folder, out, drawn=data is None and experiment not in paper.INNER)
        paper.reproduce(
            experiment, images, preset, settings, training, folder, rounds=rounds, trials=trials, jobs=jobs,
            only=[name.strip() for name in only.split(",") if name.strip()], watch=watch, tell=print_row,
            workers=workers, report=log, pace=curves.Pace(seconds_per_act, seconds_per_label),
        )  # fmt: skip
    out.print((folder / "report.md").read_text(encoding="utf-8"), markup=False, soft_wrap=True)
    out.print(f"Curves, figures, splits and this report are in {folder}.", soft_wrap=True)


def demo(
    folder: Annotated[Path, typer.Option("--out", help="Where everything goes.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Show a whole campaign on a small drawn archive: no data, no network, no labels of yours.

    Example: [bold]anneal demo --out demo[/]
    """
    out.print("These scenes are [bold]drawn, not real imagery[/]: they show how a campaign runs, no more.\n")
    with progress_bars() as watch:
        from anneal.experiments import demo as demonstration

        rows = demonstration.run(folder, seed, watch, print_row)
    out.print("\nmAP@5 by bits of annotation:")
    for row in rows:
        bar = "█" * round(40 * row["map5_min"])
        out.print(f"  {row['player']:>7} {row['bits']:5d}  {bar} {row['map5_min']:.3f}")
    out.print(f"\nThe curve:      {folder / 'curve.png'}")
    out.print(f"Search results: {folder / 'retrieval.png'} (before and after; wrong ones framed red)")
    out.print("\nNext, with images of your own:")
    out.print("  anneal init FOLDER --campaign my-campaign      read them and plan the first questions")
    out.print("  anneal label --campaign my-campaign            answer in the browser")
    out.print("  anneal search IMAGE --campaign my-campaign     find its look-alikes")
    out.print("  anneal simulate FOLDER                         a curve, if they lie in class folders")


def _log(report: bool, run: Path, to: Console, drawn: bool = False) -> Path | None:
    """The log that a run with --report is noted in; None without. One line says which images are scored.
    Nothing is chosen by drawn scenes: they are noted in the run's folder."""
    from anneal.experiments import reported

    if drawn:
        return run / reported.NAME
    log = reported.log_of(run)
    if report:
        to.print(f"Test images are scored, and the run is noted in {escape(str(log))}.", soft_wrap=True)
        return log
    to.print("Training images are scored, split anew. Give --report to score test images.", soft_wrap=True)
    return None


def _read(source: Path, settings: Settings, cache: Path | None, watch: Watch) -> Archive:
    """The images of an experiment. A network that cannot be loaded is refused before any of them is read."""
    from anneal.archive.catalog import open_archive
    from anneal.archive.reading import Reading
    from anneal.network import backbones

    backbones.load(backbones.fetch(settings.backbone))
    return open_archive(
        source, settings.px, cache or _cache(), watch("reading"), reading=Reading.of(settings)
    )


def _number_or_text(field: Any) -> Any:
    """A field of a CSV file; None if it is empty."""
    try:
        number = float(field)
    except ValueError:
        return field or None
    return int(number) if number.is_integer() else number


def _cache() -> Path:
    home = os.environ.get("ANNEAL_CACHE")
    return Path(home) if home else Path.home() / ".cache" / "anneal"
