"""Images as small JPEGs, and a line of them as HTML that needs no other file."""

import base64
import html
import io
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from anneal.names import printable

SIDE = 96  # pixels of a picture in a line


def jpeg(pixels: NDArray[np.uint8], side: int | None = None, quality: int = 90) -> bytes:
    """(h, w, 3) as a JPEG file; with ``side`` as a square of that many pixels."""
    picture = Image.fromarray(np.asarray(pixels))
    if side is not None:
        picture = picture.resize((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=quality)
    return file.getvalue()


def element(pixels: NDArray[np.uint8], caption: str, side: int = SIDE) -> str:
    """An HTML image that holds its own pixels."""
    data = base64.b64encode(jpeg(pixels, side, 75)).decode()
    name = html.escape(printable(caption), quote=True)
    uri = f"data:image/jpeg;base64,{data}"
    return f'<img src="{uri}" width="{side}" height="{side}" alt="{name}" title="{name}">'


def page(text: str, images: Iterable[tuple[NDArray[np.uint8], str]]) -> str:
    """A sentence and a line of images with captions, as HTML."""
    pictures = "".join(element(pixels, caption) for pixels, caption in images)
    return f"<div><p>{html.escape(printable(text))}</p>{pictures}</div>"
