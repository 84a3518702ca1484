"""The commands that play experiments. Heavy modules are imported inside them, so that --help is instant."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from anneal.console import (
    Device,
    Json,
    Ray,
    describe,
    out,
    print_json,
    print_row,
    progress_bars,
    use_device,
    with_settings,
)
from anneal.errors import UsageError
from anneal.settings import Settings, refuse_unused

Jobs = Annotated[int, typer.Option(help="Trials played side by side; a cluster has one on each CPU.", min=1)]
Cache = Annotated[Path | None, typer.Option(help="Where pixels and features are stored [ANNEAL_CACHE].")]
Seed = Annotated[int, typer.Option(help="Determines every random choice.")]
EXPERIMENTS = "comparison, lambda, diversity, panels, all, choices, beyond, noise, parts, anchors."
Mode = Annotated[str, typer.Option(help="ours (the defaults) or paper (its network and training).")]
HeldOut = Annotated[float | None, typer.Option(help="Share of held-out questions, as a person has them [0].")]
OwnText = Annotated[str | None, typer.Option(help="In place of the mode's own.")]
OwnNumber = Annotated[int | None, typer.Option(help="In place of the mode's own.")]
JOBS = os.cpu_count() or 1


@with_settings(strategy="place,mgue,random", per_round=369)
def simulate(
    archive: Annotated[Path, typer.Argument(help="Images in one folder per class, or a manifest.")],
    settings: Settings,
    rounds: Annotated[int, typer.Option(help="Rounds after the first.")] = 5,
    start: Annotated[str, typer.Option(help="cold, or labelled:N: class labels for N images.")] = "cold",
    noise: Annotated[float, typer.Option(help="Share of the oracle's answers that are wrong.")] = 0.0,
    trials: Annotated[int, typer.Option(help="Repeat with seeds SEED, SEED + 1, …", min=1)] = 1,
    jobs: Jobs = JOBS,
    folder: Annotated[Path, typer.Option("--out", help="Where the curve goes.")] = Path("runs/simulate"),
    cache: Cache = None,
    device: Device = "auto",
    ray: Ray = None,
    as_json: Json = False,
) -> None:
    """Play a campaign with an oracle that knows the classes, and draw the learning curve.

    --strategy takes several, with commas: place, mgue, bcgue, random, module:name, and cal, cal-metric,
    typiclust, coreset, which ask for classes. The same command, given again, goes on where it was stopped.

    Example: [bold]anneal simulate UCMerced/ --strategy mgue,random --start labelled:84 --trials 3[/]
    """
    use_device(device)
    names = [name.strip() for name in settings.strategy.split(",")]
    if len(set(names)) < len(names):
        raise UsageError("--strategy names one strategy twice.")
    refuse_unused(settings, names)
    from anneal import cluster

    with progress_bars() as watch, cluster.workers(ray) as workers:
        from anneal.archive.catalog import open_archive
        from anneal.archive.reading import Reading
        from anneal.experiments import paper
        from anneal.experiments.oracle import Oracle
        from anneal.experiments.play import Player
        from anneal.experiments.runner import untold

        players = {}
        for name in names:
            own = replace(settings, strategy=name)
            players[name] = Player(own, rounds, start, noise, paper.training_of(name))
        images = open_archive(
            archive, settings.px, cache or _cache(), watch("reading"), reading=Reading.of(settings)
        )
        Oracle.of(images)  # refuses an archive without classes before anything is encoded
        if not as_json:
            describe(images)
        tell = untold if as_json else print_row
        rows = paper.simulate(
            images, players, folder, trials=trials, jobs=jobs, watch=watch, tell=tell, workers=workers
        )
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
    trials: Annotated[int | None, typer.Option(help="Repeat with seeds SEED, SEED + 1, … [3]", min=1)] = None,
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
    cache: Cache = None,
    device: Device = "auto",
    ray: Ray = None,
) -> None:
    """Redo the paper's experiments: curves, figures, and tables that set ours beside the paper's.

    beyond, noise, parts and anchors start from nothing, with the product's settings. choices measures what
    the paper leaves open, on training images alone. The same command, given again, goes on where it was
    stopped.

    Example: [bold]anneal reproduce comparison --archive ucmerced --data UCMerced/ --out runs/ucmerced[/]
    """
    use_device(device)
    if data is None and not quick:
        raise UsageError("Give --data FOLDER with the archive's images, or --quick for a drawn archive.")
    from anneal import cluster

    with progress_bars() as watch, cluster.workers(ray) as workers:
        from anneal.archive.catalog import open_archive
        from anneal.archive.reading import Reading
        from anneal.experiments import paper, scenes

        preset = paper.preset(archive if data else "demo")
        cold = experiment in paper.COLD
        if cold and (mode != "ours" or depth is not None):
            raise UsageError(f"{experiment} is played with the defaults: leave out --mode and --depth.")
        changed = {"backbone": backbone, "depth": depth, "px": px, "per_round": per_round, "heldout": heldout}
        settings, training = paper.settings_of(mode, preset, cold, seed=seed, **changed)
        if rounds is None:
            rounds = 2 if quick else preset.cold_rounds if cold else preset.rounds
        source = data or scenes.drawn(folder / "archive", 20, seed, settings.px)
        images = open_archive(
            source, settings.px, cache or _cache(), watch("reading"), reading=Reading.of(settings)
        )
        describe(images)
        players = [name.strip() for name in only.split(",") if name.strip()]
        times = trials or (1 if quick else preset.trials)
        paper.reproduce(
            experiment, images, preset, settings, training, folder, rounds=rounds, trials=times, jobs=jobs,
            only=players, watch=watch, tell=print_row, workers=workers,
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
