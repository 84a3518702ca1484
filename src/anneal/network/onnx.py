"""The frozen part of a network in ONNX Runtime, which is several times as fast as torch on a CPU.

The network is exported once and the file is kept beside the features. An export takes about ten seconds, so
``encode`` asks for one only if there are many images.
"""

import logging
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from anneal.errors import AnnealError
from anneal.files import replacing
from anneal.network.backbones import Backbone
from anneal.network.model import Depth, Encoder, frozen
from anneal.pairs import Floats

TOLERANCE = 1e-3  # of the largest value: an export whose output differs more from torch's is not used
log = logging.getLogger("anneal")


class Session:
    """An exported network. Each image, with its views, is one run in one thread, and as many images as torch
    has threads run side by side. So an image's output does not depend on what is encoded beside it. Pickled,
    it is the path of its file."""

    def __init__(self, model: Path | bytes) -> None:
        import onnxruntime

        self.model = model
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # errors
        self.network = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (self.model,)

    def __call__(self, images: NDArray[np.uint8], views: int) -> Floats:
        """(m, px, px, 3) → (m, …): the mean over this number of quarter turns."""
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return np.stack(list(pool.map(lambda image: self._one(image, views), images)))

    def _one(self, image: NDArray[np.uint8], views: int) -> Floats:
        turned = np.stack([np.rot90(image, turn) for turn in range(views)])
        (output,) = self.network.run(None, {"pixels": turned})
        mean: Floats = output.mean(axis=0)
        return mean


def file_of(folder: Path, backbone: Backbone, depth: Depth, px: int) -> Path:
    """Where the export of this network is kept. The name changes with its weights."""
    return folder / f"frozen-{backbone.digest}-{depth}-{px}.onnx"


def session(
    folder: Path, backbone: Backbone, depth: Depth, sample: NDArray[np.uint8], make: bool
) -> Session | None:
    """The export of this network for images as large as ``sample``, kept in ``folder``. With ``make`` it is
    made if it is not there. None without one, on a GPU, and if it fails: then one line of the log says so."""
    if backbone.device.type != "cpu":
        return None
    file = file_of(folder, backbone, depth, sample.shape[1])
    try:
        if not file.exists():
            if not make:
                return None
            model = export(backbone, depth, sample)
            with replacing(file) as out:
                out.write(model)
        return _opened(file.absolute())
    except AnnealError:
        raise
    except Exception as error:  # of the exporter or of ONNX Runtime, which have many
        reason = str(error).strip().partition("\n")[0]
        log.warning(
            "%s runs in torch, which is slower: it cannot be used in ONNX Runtime (%s: %s).",
            backbone.name,
            type(error).__name__,
            reason,
        )
        return None


@lru_cache(maxsize=2)
def _opened(file: Path) -> Session:
    """A name stands for the same weights for ever, so a session can be used again."""
    return Session(file)


def export(backbone: Backbone, depth: Depth, sample: NDArray[np.uint8]) -> bytes:
    """The frozen part as an ONNX model from pixels, for any number of images. Its output for ``sample`` has
    been compared with torch's."""
    return _exported(_FromPixels(backbone, depth).eval(), sample)


def export_whole(backbone: Backbone, encoder: Encoder | None, views: int, sample: NDArray[np.uint8]) -> bytes:
    """Everything from pixels to the unit vectors that are searched, as an ONNX model: the views, the backbone
    and the trained part. Without an encoder the vectors are the frozen features."""
    return _exported(_ToVectors(backbone, encoder, views).eval(), sample)


def _exported(network: nn.Module, sample: NDArray[np.uint8]) -> bytes:
    pixels = torch.from_numpy(np.array(sample))
    two = pixels[[0, 0]]  # a batch of one would be taken for a constant
    batch = torch.export.Dim.DYNAMIC
    with torch.inference_mode(False), _quiet():
        program = torch.onnx.export(
            network,
            (two,),
            dynamo=True,
            dynamic_shapes=({0: batch},),
            input_names=["pixels"],
            external_data=False,
            verbose=False,
        )
    assert program is not None
    model: bytes = program.model_proto.SerializeToString()
    with torch.inference_mode():
        expected = network(pixels).numpy()
    difference = np.abs(Session(model)(sample, 1) - expected).max()
    if not difference <= TOLERANCE * np.abs(expected).max():
        raise ValueError(f"its output differs from torch's by {difference:.2g}")
    return model


class _FromPixels(nn.Module):
    """The frozen part with the scaling of pixels in front of it."""

    def __init__(self, backbone: Backbone, depth: Depth) -> None:
        super().__init__()
        self.normalise = backbone.normalise
        self.part = frozen(backbone, depth)

    def forward(self, pixels: Tensor) -> Any:
        return self.part(self.normalise(pixels))


class _ToVectors(nn.Module):
    """The frozen part, the mean over the views, and the trained part; as ``encode.query`` does it."""

    def __init__(self, backbone: Backbone, encoder: Encoder | None, views: int) -> None:
        super().__init__()
        depth: Depth = "head" if encoder is None else encoder.depth
        self.from_pixels = _FromPixels(backbone, depth)
        self.encoder = encoder
        self.views = views if depth == "head" else 1

    def forward(self, pixels: Tensor) -> Any:
        turned = [torch.rot90(pixels, turn, (1, 2)) for turn in range(self.views)]
        rows = torch.stack([self.from_pixels(view) for view in turned]).mean(dim=0)
        if self.encoder is None:
            return F.normalize(rows, dim=1)
        features, projected = self.encoder(rows)
        return F.normalize(features if self.encoder.space == "backbone" else projected, dim=1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's warnings and notes, which are for torch's developers."""
    notes = logging.getLogger("torch.onnx")
    level = notes.level
    notes.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        notes.setLevel(level)
