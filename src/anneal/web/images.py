"""Pictures and names of the archive's images."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from anneal.web.desk import FOREVER, SharedDesk

router = APIRouter()


@router.get("/api/images/{image}", response_class=Response)
def image(desk: SharedDesk, image: int) -> Response:
    """A JPEG to judge by, in the image's own proportions."""
    data, from_file = desk.pictures.large(desk.image(image))
    headers = FOREVER if from_file else {"cache-control": "no-store"}
    return Response(data, media_type="image/jpeg", headers=headers)


@router.get("/api/thumbs/{image}", response_class=Response)
def thumb(desk: SharedDesk, image: int) -> Response:
    """A small square JPEG."""
    return Response(desk.pictures.small(desk.image(image)), media_type="image/jpeg", headers=FOREVER)


@router.get("/api/names")
def names(
    desk: SharedDesk, offset: int = 0, limit: Annotated[int, Query(ge=1, le=1000)] = 200
) -> dict[str, Any]:
    """Paths of the images, in the order of their ids."""
    first = max(offset, 0)
    return {"total": desk.campaign.size, "names": desk.archive.paths[first : first + limit]}
