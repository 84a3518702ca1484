"""Vectors into a Qdrant collection, so that search past one machine runs on an existing engine."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from anneal.errors import AnnealError, UsageError
from anneal.export.images import Catalogue
from anneal.export.tables import needed
from anneal.files import release
from anneal.pairs import Floats, Ids
from anneal.watch import Progress, silent

BATCH = 256  # points in a request
FORM = "Write --to qdrant://HOST:PORT/COLLECTION, or qdrant:///folder/COLLECTION for a local folder."


def send(
    catalogue: Catalogue, vectors: Floats, images: Ids, address: str, progress: Progress = silent
) -> int:
    """Put every image into the collection: its id, its vector, and path, group, score and footprint as
    payload. A point that is there with the same payload and vector is written again to the same effect, so a
    stopped transfer is repeated by the same command. Returns the number of points."""
    client, collection = _connect(address)
    models = needed("qdrant_client.models", "qdrant")
    try:
        _prepare(client, models, collection, vectors.shape[1])
        for start in range(0, len(images), BATCH):
            some = images[start : start + BATCH]
            rows = np.asarray(vectors[some], dtype=np.float32).tolist()
            points = [
                models.PointStruct(id=image, vector=row, payload=_payload(catalogue, image))
                for image, row in zip(some.tolist(), rows, strict=True)
            ]
            client.upsert(collection, points, wait=True)
            release(vectors)
            progress(min(start + BATCH, len(images)), len(images))
    except AnnealError:
        raise
    except Exception as error:  # of the client, which has many
        reason = str(error).strip().partition("\n")[0]
        raise AnnealError(
            f"{address} did not take the vectors ({reason}): see that Qdrant runs, then give the same "
            "command again."
        ) from error
    finally:
        client.close()
    return len(images)


def _connect(address: str) -> tuple[Any, str]:
    """A client, and the name of the collection."""
    try:
        parts = urlsplit(address)
        port = parts.port or 6333
    except ValueError:
        raise UsageError(f"{address} is not an address. {FORM}") from None
    where, _, collection = parts.path.rpartition("/")
    local = not parts.netloc
    if parts.scheme != "qdrant" or not collection or bool(where) != local:
        raise UsageError(f"{address} is not an address. {FORM}")
    client = needed("qdrant_client", "qdrant").QdrantClient
    if not local:
        return client(host=parts.hostname, port=port, check_compatibility=False), collection
    try:
        Path(where).mkdir(parents=True, exist_ok=True)
        return client(path=where), collection
    except (OSError, RuntimeError) as error:
        raise UsageError(f"{where} cannot be opened as a Qdrant folder: {error}.") from None


def _prepare(client: Any, models: Any, collection: str, width: int) -> None:
    """The collection is there and its vectors are as long as ours."""
    if not client.collection_exists(collection):
        space = models.VectorParams(size=width, distance=models.Distance.COSINE)
        client.create_collection(collection, vectors_config=space)
        return
    there = client.get_collection(collection).config.params.vectors
    if getattr(there, "size", None) != width:
        raise UsageError(f"The collection {collection} holds other vectors: name another one.")


def _payload(catalogue: Catalogue, image: int) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "path": catalogue.path(image),
        "group": catalogue.group(image),
        "score": catalogue.score(image),
        "how": catalogue.how(image),
    }
    footprint = catalogue.footprint(image)
    if footprint:
        payload["footprint"] = [list(corner) for corner in footprint]
        x, y = np.mean(footprint, axis=0).tolist()
        payload["centre"] = {"lon": x, "lat": y}  # as Qdrant's geo filters take it
    return payload
