"""The serving model for use elsewhere: weights, ONNX, and a folder of transformers where that fits."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from anneal.campaign.campaign import Campaign
from anneal.campaign.intact import network_file
from anneal.campaign.rounds import FROZEN
from anneal.errors import CampaignError
from anneal.files import replacing, write_text
from anneal.pairs import Floats

ABOUT_FILE = "model.json"
WEIGHTS_FILE = "model.safetensors"
ONNX_FILE = "network.onnx"
NETWORK_FILE = "network.safetensors"
TRANSFORMERS_FOLDER = "transformers"
SAMPLE = 8  # images on which the ONNX model is compared with the campaign's vectors
CLOSE = 2e-3  # largest difference of a number: features of depth ``last`` are stored in half precision


def write_model(campaign: Campaign, folder: Path) -> list[str]:
    """Write the serving model into a folder; returns the names of what is in it. The weights are those of the
    trained part, the ONNX model is everything from pixels to vectors: its output has been compared with the
    vectors of some images."""
    from anneal.campaign.networks import network_of
    from anneal.network import backbones, model, onnx

    settings = campaign.settings
    number = campaign.rounds.serving
    files = campaign.rounds.files(number)
    pretrained = backbones.load(settings.backbone, "cpu")
    backbone = network_of(campaign, pretrained, number)
    tuned = network_file(files.folder)
    encoder = None if number == FROZEN else model.load(files.folder, backbone)
    about: dict[str, Any] = {
        "backbone": settings.backbone,
        "px": settings.px,
        "views": settings.views,
        "round": None if number == FROZEN else number,
        "network": "" if tuned is None else tuned.stem,
        "space": "frozen" if encoder is None else encoder.space,
        "mean": backbone.mean,
        "std": backbone.std,
    }
    written = []
    if encoder is not None:
        model.save(folder, encoder, about)
        written.append(WEIGHTS_FILE)
    else:
        write_text(folder / ABOUT_FILE, json.dumps(about, indent=1))
    written.append(ABOUT_FILE)
    if tuned is not None:
        with replacing(folder / NETWORK_FILE) as out:
            out.write(tuned.read_bytes())
        written.append(NETWORK_FILE)
    pixels = campaign.archive().pixels
    chosen = np.linspace(0, len(pixels) - 1, min(SAMPLE, len(pixels)), dtype=np.int64)
    network = onnx.export_whole(backbone, encoder, settings.views, pixels[chosen[:1]])
    _compare(onnx.Session(network)(pixels[chosen], 1), campaign.rounds.vectors()[chosen])
    with replacing(folder / ONNX_FILE) as out:
        out.write(network)
    written.append(ONNX_FILE)
    tail = None if encoder is None else encoder.tail
    if tuned is not None:
        tail = model.frozen(backbone, "head")
    colours = campaign.reading.channels == 3  # a network of transformers takes no others
    if colours and backbones.save_transformers(settings.backbone, tail, folder / TRANSFORMERS_FOLDER):
        written.append(TRANSFORMERS_FOLDER)
    return written


def _compare(found: Floats, expected: Floats) -> None:
    difference = float(np.abs(found - expected).max())
    if not difference <= CLOSE:
        raise CampaignError(
            f"The ONNX model gives other vectors than the campaign has (by {difference:.2g}), so it is not "
            "written: take a turn with anneal round, then export again."
        )
