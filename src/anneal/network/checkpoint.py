"""A training that takes long is saved on its way. A process that was stopped goes on from there. On a CPU it
ends with the same weights; the random state of a GPU is not saved.

The file is of safetensors, so that reading it runs no code. It is of use to the same training only, from the
same inputs: the hash of the start, batches and settings is in it. Training by several processes is not saved.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors import torch as safetensors
from torch import Tensor, nn

from anneal.files import replacing
from anneal.network import processes

EVERY = 120.0  # seconds between two saves: what takes less is never saved


class Checkpoint:
    """Where a training has come to: its networks, its optimizer, its random numbers and the losses so far."""

    def __init__(
        self,
        file: Path | None,
        networks: nn.Module,
        optimizer: torch.optim.Optimizer,
        rng: np.random.Generator,
        task: Iterable[bytes],
    ) -> None:
        """``task`` is what determines the training, beside the networks as they are now."""
        self._file = file if processes.count() == 1 else None
        self._networks = networks
        self._optimizer = optimizer
        self._rng = rng
        self._task = "" if self._file is None else _digest(networks, task)
        self._saved = time.monotonic()
        self._is_long = False

    def resume(self) -> list[Tensor]:
        """Go on from the file, if it is of this training; returns the losses so far."""
        read = None if self._file is None else _read(self._file)
        if read is None or read[0].get("task") != self._task:
            return []
        about, tensors = read
        self._networks.load_state_dict(_below("network", tensors))
        for number, parameter in enumerate(_parameters(self._optimizer)):
            # The fused optimizer needs the layout of the parameter, which may be channels_last.
            for what, value in _below(f"optimizer.{number}", tensors).items():
                value = value.to(parameter.device)
                laid_out = torch.empty_like(parameter).copy_(value) if value.ndim else value
                self._optimizer.state[parameter][what] = laid_out
        torch.set_rng_state(tensors["random"])
        self._rng.bit_generator.state = json.loads(about["rng"])
        self._is_long = True
        device = next(self._networks.parameters()).device
        return list(tensors["losses"].to(device).unbind())

    def offer(self, losses: list[Tensor]) -> None:
        """Save, if the last time is long ago."""
        if self._file is not None and time.monotonic() - self._saved >= EVERY:
            self._save(self._file, losses)

    def finish(self, losses: list[Tensor]) -> None:
        """Save the end of a training that took long: embedding and planning may still be stopped."""
        if self._file is not None and self._is_long:
            self._save(self._file, losses)

    def _save(self, file: Path, losses: list[Tensor]) -> None:
        tensors = {f"network.{name}": value for name, value in self._networks.state_dict().items()}
        for number, parameter in enumerate(_parameters(self._optimizer)):
            for what, value in self._optimizer.state[parameter].items():
                tensors[f"optimizer.{number}.{what}"] = value
        tensors["losses"] = torch.stack(losses)
        tensors["random"] = torch.get_rng_state()
        about = {"task": self._task, "rng": json.dumps(self._rng.bit_generator.state)}
        plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        with replacing(file) as out:
            out.write(safetensors.save(plain, about))
        self._saved = time.monotonic()
        self._is_long = True


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[nn.Parameter]:
    """Those that are trained: others have no moments."""
    for group in optimizer.param_groups:
        yield from (parameter for parameter in group["params"] if parameter.requires_grad)


def _read(file: Path) -> tuple[dict[str, str], dict[str, Tensor]] | None:
    """What the file says of the training, and its tensors; None if there is none that can be read."""
    try:
        with safe_open(file, framework="pt") as opened:
            return opened.metadata() or {}, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dictionary
    except (OSError, ValueError, SafetensorError):
        return None


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}


def _digest(networks: nn.Module, task: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for value in networks.state_dict().values():
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    for part in task:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()
