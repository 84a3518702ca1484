"""The vectors of the serving model, with the images they are of, and their search index."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.campaign.rounds import EXACT
from anneal.export.images import Catalogue
from anneal.export.tables import Block, write_parquet
from anneal.files import release, replacing
from anneal.method.neighbours import build_index
from anneal.pairs import Floats, Ids
from anneal.watch import Progress, silent

SOME = 8192  # vectors at a time
VECTORS_FILE = "vectors.npy"
TABLE_FILE = "vectors.parquet"


def write_vectors(
    catalogue: Catalogue, vectors: Floats, images: Ids, folder: Path, progress: Progress = silent
) -> int:
    """Write ``vectors.npy`` (unit float32 rows) and ``vectors.parquet`` (the same with id, path, group and
    score, row by row). Returns the number of rows."""
    width = vectors.shape[1]
    schema = {
        "id": "int64",
        "path": "string",
        "group": "string",
        "score": "float",
        "vector": f"float[{width}]",
    }
    count = write_parquet(folder / TABLE_FILE, schema, _rows(catalogue, vectors, images, progress))
    with replacing(folder / VECTORS_FILE) as out:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(images), width)}
        np.lib.format.write_array_header_1_0(out, header)
        for start in range(0, len(images), SOME):
            rows = np.asarray(vectors[images[start : start + SOME]], dtype="<f4")
            out.write(rows.tobytes())
            release(vectors)
    return count


def _rows(catalogue: Catalogue, vectors: Floats, images: Ids, progress: Progress) -> Iterator[Block]:
    for start in range(0, len(images), SOME):
        some = images[start : start + SOME]
        yield {
            "id": some.tolist(),
            "path": [catalogue.path(image) for image in some.tolist()],
            "group": [catalogue.group(image) for image in some.tolist()],
            "score": [catalogue.score(image) for image in some.tolist()],
            "vector": list(np.asarray(vectors[some], dtype=np.float32)),
        }
        release(vectors)
        progress(min(start + SOME, len(images)), len(images))


def write_index(campaign: Campaign, file: Path) -> str:
    """Write a faiss index of every vector: the one that serves, or a flat one of a small archive. Row i is
    image i; similarities are inner products. Returns what kind it is."""
    import faiss

    vectors = campaign.rounds.vectors()
    index = campaign.rounds.index()
    if index is None and len(vectors) > EXACT:
        index = build_index(vectors)
    lists = faiss.IndexFlatIP(vectors.shape[1]) if index is None else index.lists
    if index is None:
        lists.add(np.ascontiguousarray(vectors, dtype=np.float32))
    with replacing(file) as out:
        faiss.write_index(lists, faiss.PyCallbackIOWriter(out.write))
    return "exact" if index is None else "inverted file"
