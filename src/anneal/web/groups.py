"""Groups: their names, examples and predicted members, merge and split, downloads, and the map."""

import json
from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import BaseModel, Field

from anneal.campaign import groups
from anneal.campaign.groups import Class, Classes
from anneal.export import geo, tables
from anneal.export.groups import GROUPS, group_rows
from anneal.export.images import CLASSES, Catalogue, footprint_rows
from anneal.method.predict import NO_CLASS
from anneal.names import printable
from anneal.pairs import Ids
from anneal.web.bounds import ImageId, ManyIds, Name, Number, Text
from anneal.web.desk import Desk, Json, SharedDesk

EXAMPLES = 10  # images of a row
DRAWN = 3000  # footprints on a map, at most
Least = Annotated[float, Query(ge=0, le=1)]
ImageIds = Annotated[list[ImageId], Field(min_length=1, max_length=10_000)]

router = APIRouter()


class Naming(BaseModel):
    images: ImageIds
    name: Text
    annotator: Name = "me"


class Merging(BaseModel):
    one: ImageId
    other: ImageId
    annotator: Name = "me"


class Splitting(BaseModel):
    images: ImageIds
    annotator: Name = "me"
    plan: bool = True  # only say what would happen


@router.get("/api/groups")
def every_group(
    desk: SharedDesk,
    least: Least = 0.0,
    offset: Number = 0,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> Json:
    """The groups, largest first, each with examples. ``least`` is the lowest score of a predicted member."""
    classes = desk.classes().at_least(least)
    live = desk.campaign.images
    predicted = _predicted(classes, live)
    counts = np.bincount(classes.column[predicted], minlength=len(classes.every))
    shown = range(offset, min(offset + limit, len(classes.every)))
    located = any(about.footprint for about in desk.archive.about)
    return {
        "total": len(classes.every),
        "images": len(live),
        "settled": int(classes.settled[live].sum()),
        "predicted": len(predicted),
        "located": located,
        "titles": [{"number": one.number, "title": one.title} for one in classes.every[:1000]],
        "groups": [_row(desk, classes, predicted, counts, place) for place in shown],
    }


@router.get("/api/groups/{number}")
def one_group(desk: SharedDesk, number: Number, least: Least = 0.0) -> Json:
    """Every settled image of a group, and its predicted ones, the surest first; at most a thousand each."""
    classes = desk.classes().at_least(least)
    place = next((i for i, one in enumerate(classes.every) if one.number == number), None)
    if place is None:
        raise HTTPException(404, "That group is no longer there: look at the list again.")
    predicted = _predicted(classes, desk.campaign.images)
    return {
        "settled": [_image(desk, image) for image in classes.every[place].images[:1000].tolist()],
        "predicted": _surest(desk, classes, predicted, place, 1000),
    }


@router.put("/api/groups/name")
def name(desk: SharedDesk, sent: Naming) -> Json:
    """Name the groups of these images."""
    with desk.lock:
        groups.give_name(desk.campaign, sent.images, sent.name, sent.annotator)
    return {"name": sent.name.strip()}


@router.post("/api/groups/merge")
def merge(desk: SharedDesk, sent: Merging) -> Json:
    """Make one group of two: a similar answer between two of their images."""
    with desk.lock:
        number = groups.merge(desk.campaign, sent.one, sent.other, sent.annotator)
        return {"answer": number, "contradictions": len(desk.campaign.contradictions())}


@router.post("/api/groups/split")
def split(desk: SharedDesk, sent: Splitting) -> Json:
    """Let images leave their group, or say what would happen then."""
    with desk.lock:
        if sent.plan:
            done = groups.plan_split(desk.campaign, sent.images)
        else:
            done = groups.split_off(desk.campaign, sent.images, sent.annotator)
    return {
        "withdrawn": len(done.rows),
        "leaving": [len(part) for part in done.leaving],
        "staying": [len(part) for part in done.staying],
    }


@router.get("/api/listing.{kind}", response_class=Response)
def listing(
    desk: SharedDesk,
    kind: Literal["csv", "geojson"],
    ids: ManyIds = "",
    least: Least = 0.0,
) -> Response:
    """Images with their groups, as a file: those with these ids (with commas between), or all."""
    images = _chosen(desk, ids)
    catalogue = Catalogue(desk.archive, desk.classes().at_least(least))
    if kind == "csv":
        blocks = group_rows(catalogue, images)
        rows = [row for block in blocks for row in tables.rows_of(GROUPS, block)]
        return _attached(tables.csv_lines([GROUPS, *rows]), "groups.csv", "text/csv; charset=utf-8")
    features = list(_features(catalogue, images))
    body = json.dumps({"type": "FeatureCollection", "features": features}, ensure_ascii=False)
    return _attached(body.encode(), "images.geojson", "application/geo+json")


@router.get("/api/paths")
def paths(desk: SharedDesk, ids: ManyIds) -> list[str]:
    """The files of these images, as absolute paths."""
    return [printable(str(desk.archive.file(image).absolute())) for image in _chosen(desk, ids)]


@router.get("/api/map")
def located(desk: SharedDesk, ids: ManyIds = "", least: Least = 0.0) -> Json:
    """Footprints to draw, each with the place of its group in the list; some of them if there are many."""
    classes = desk.classes().at_least(least)
    images = [i for i in _chosen(desk, ids) if len(desk.archive.about[i].footprint) > 2]
    drawn = images[:: max(-(-len(images) // DRAWN), 1)]
    shown = [
        {**_image(desk, i), "group": int(classes.column[i]), "corners": desk.archive.about[i].footprint}
        for i in drawn
    ]
    titles = [one.title for one in classes.every[:1000]]
    return {"total": len(images), "images": shown, "titles": titles}


def _row(desk: Desk, classes: Classes, predicted: Ids, counts: Ids, place: int) -> Json:
    one: Class = classes.every[place]
    return {
        "number": one.number,
        "place": place,
        "name": one.name,
        "title": one.title,
        "groups": one.groups,
        "size": len(one.images),
        "examples": [_image(desk, image) for image in one.images[:EXAMPLES].tolist()],
        "predicted": int(counts[place]),
        "surest": _surest(desk, classes, predicted, place, EXAMPLES),
    }


def _predicted(classes: Classes, live: Ids) -> Ids:
    """The images whose class is predicted."""
    return np.asarray(live[~classes.settled[live] & (classes.column[live] != NO_CLASS)])


def _surest(desk: Desk, classes: Classes, predicted: Ids, place: int, most: int) -> list[Json]:
    own = predicted[classes.column[predicted] == place]
    best = own[np.argsort(-classes.score[own], kind="stable")[:most]]
    return [{**_image(desk, i), "score": round(float(classes.score[i]), 3)} for i in best.tolist()]


def _image(desk: Desk, image: int) -> Json:
    return {"id": image, "name": printable(desk.archive.paths[image])}


def _features(catalogue: Catalogue, images: list[int]) -> Iterator[Json]:
    for block in footprint_rows(catalogue, images):
        for row, footprint in enumerate(block["footprint"]):
            if len(footprint) > 2:
                yield geo.feature(footprint, {name: block[name][row] for name in CLASSES})


def _chosen(desk: Desk, ids: str) -> list[int]:
    if not ids:
        return [int(image) for image in desk.campaign.images]
    parts = ids.split(",")
    if not all(part.isdecimal() and int(part) < desk.campaign.size for part in parts):
        raise HTTPException(422, "Image ids are whole numbers with commas between.")
    return [int(part) for part in parts]


def _attached(body: bytes, file: str, kind: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{file}"', "cache-control": "no-store"}
    return Response(body, media_type=kind, headers=headers)
