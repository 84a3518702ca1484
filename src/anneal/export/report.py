"""One HTML file for the owner of an archive: what was asked, how good the search is, the groups, a map."""

import html
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from anneal.archive import thumbnails
from anneal.campaign import guidance, heldout, progress
from anneal.campaign.campaign import Campaign
from anneal.campaign.groups import Class
from anneal.export import chart
from anneal.export.images import Catalogue
from anneal.files import write_text
from anneal.method.predict import NO_CLASS
from anneal.names import printable
from anneal.words import count

EXAMPLES = 8  # thumbnails of a group
GROUPS = 100  # groups that are shown, the largest
DRAWN = 5000  # footprints on the map
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: 0.2rem 1rem 0.2rem 0; }
section { margin: 2rem 0; } h3 { margin-bottom: 0.3rem; } .row { display: flex; flex-wrap: wrap; gap: 4px; }
svg { width: 100%; height: auto; border: 1px solid #8888; } svg text { font-size: 12px; fill: currentColor; }
@media (max-width: 600px) { svg text { font-size: 26px; } }
.grid { stroke: #8886; fill: none; } .note { opacity: 0.75; }
"""


def write_report(campaign: Campaign, catalogue: Catalogue, file: Path) -> None:
    """Write the report. It refers to nothing outside itself."""
    name = html.escape(printable(campaign.folder.resolve().name))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name}</title><style>{STYLE}</style></head><body><main>",
        f"<h1>{name}</h1>",
        f'<p class="note">Written on {time.strftime("%d %B %Y")} by anneal.</p>',
        *_asked(campaign),
        *_quality(campaign),
        *_groups(campaign, catalogue),
        *_map(campaign, catalogue),
        "</main></body></html>\n",
    ]
    write_text(file, "\n".join(parts))


def _asked(campaign: Campaign) -> Iterator[str]:
    standing = progress.standing(campaign)
    criterion = campaign.store.setting("criterion", "")
    yield "<section><h2>What was asked</h2>"
    if criterion:
        yield f"<p>Two images are similar if: {html.escape(criterion)}.</p>"
    rows = {
        "images": standing.images,
        "answers": standing.answers,
        "similar": standing.similar,
        "dissimilar": standing.dissimilar,
        "unsure": standing.unsure,
        "held out to measure with": standing.heldout,
        "class labels": standing.labels,
        "pairs that follow from them": standing.implied,
        "contradictions": standing.contradictions,
        "rounds of learning": standing.rounds,
    }
    yield _table(rows)
    people = {
        person["annotator"]: f"{count(person['answers'], 'answer')}" for person in progress.people(campaign)
    }
    if people:
        yield "<h3>By whom</h3>" + _table(people)
    yield "</section>"


def _quality(campaign: Campaign) -> Iterator[str]:
    yield "<section><h2>How good the search is</h2>"
    models = heldout.models(campaign) if progress.standing(campaign).heldout else []
    serving = [model for model in models if model.round == campaign.rounds.serving]
    for model in serving:
        p5 = model.p5
        yield (
            f"<p>Of the five nearest images, {p5.value:.0%} are similar to the query ({p5.low:.0%} to "
            f"{p5.high:.0%} with 95 % confidence), by answers that were held out.</p>"
        )
        yield f"<p>{html.escape(guidance.guide(campaign, models).text)}</p>"
    if not serving:
        yield "<p>There are no held-out answers, so nothing was measured.</p>"
    yield "</section>"


def _groups(campaign: Campaign, catalogue: Catalogue) -> Iterator[str]:
    classes = catalogue.classes
    live = campaign.images
    predicted = live[~classes.settled[live] & (classes.column[live] != NO_CLASS)]
    counts = np.bincount(classes.column[predicted], minlength=len(classes.every))
    sure = np.bincount(
        classes.column[predicted], weights=classes.score[predicted], minlength=len(classes.every)
    )
    yield f"<section><h2>{count(len(classes.every), 'group')}</h2>"
    yield (
        '<p class="note">Answers settle the group of some images. The group of the others is predicted; how '
        "sure that is, is the mean probability that it is right.</p>"
    )
    for place, one in enumerate(classes.every[:GROUPS]):
        text = f"{len(one.images)} settled"
        if counts[place]:
            text += f", {counts[place]} predicted ({sure[place] / counts[place]:.0%} sure)"
        yield f"<h3>{html.escape(one.title)}</h3><p>{text}</p>"
        yield f'<div class="row">{"".join(_examples(catalogue, one))}</div>'
    if len(classes.every) > GROUPS:
        yield f"<p>… and {len(classes.every) - GROUPS} smaller groups.</p>"
    yield "</section>"


def _examples(catalogue: Catalogue, one: Class) -> Iterator[str]:
    for image in one.images[:EXAMPLES].tolist():
        yield thumbnails.element(catalogue.archive.shown(image), catalogue.archive.paths[image])


def _map(campaign: Campaign, catalogue: Catalogue) -> Iterator[str]:
    located = [image for image in campaign.images.tolist() if len(catalogue.footprint(image)) > 2]
    if not located:
        return
    step = -(-len(located) // DRAWN)
    shown = located[::step]
    yield f"<section><h2>Map</h2><p>{len(shown)} of {len(located)} images with coordinates.</p>"
    yield chart.svg(
        [
            (catalogue.footprint(image), int(catalogue.classes.column[image]), catalogue.path(image))
            for image in shown
        ]
    )
    yield "</section>"


def _table(rows: Mapping[str, object]) -> str:
    cells = (
        f"<tr><th>{html.escape(str(name))}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{''.join(cells)}</table>"
