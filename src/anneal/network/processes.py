"""Several processes train one network. ``torchrun`` or ``accelerate launch`` starts them; alone, nothing here
has an effect.

Each process encodes its share of a batch. The rows of all are gathered, and every process computes the loss
of the whole batch, because the loss takes every known pair in it. The gradient of a row comes back to the
process that encoded it, once from each process. So the mean over the processes is the batch's gradient.
"""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from anneal.errors import UsageError
from anneal.pairs import Ids

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what the launchers set


def launched() -> bool:
    """Whether a launcher started this process beside others."""
    return all(name in os.environ for name in LAUNCHED) and int(os.environ["WORLD_SIZE"]) > 1


def is_helper() -> bool:
    """Whether this is one of the others: it helps the first process to train, and writes nothing."""
    return launched() and int(os.environ["RANK"]) > 0


def join(device: torch.device) -> None:
    """Meet the processes that were started beside this one, if there are any and it has not met them yet."""
    if not launched() or count() > 1:
        return
    try:
        from accelerate import PartialState
    except ImportError:
        raise UsageError("Several processes need accelerate: pip install 'anneal[cluster]'.") from None
    PartialState(cpu=device.type == "cpu")  # gloo on CPUs, NCCL on GPUs


def count() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if count() > 1 else 0


def from_main(sent: Any) -> Any:
    """What the main process sends; the others give None."""
    values = [sent]
    if count() > 1:
        dist.broadcast_object_list(values)
    return values[0]


def share(ids: Ids) -> Ids:
    """The part of a batch that this process encodes."""
    return np.array_split(ids, count())[rank()]


def gather(rows: Tensor) -> Tensor:
    """The rows of every process below each other, in the order that ``share`` split them. Gradients flow."""
    if count() == 1:
        return rows
    lengths = torch.zeros(count(), dtype=torch.int64, device=rows.device)
    lengths[rank()] = len(rows)
    dist.all_reduce(lengths)
    parts = [rows.new_zeros((length, *rows.shape[1:])) for length in lengths.tolist()]
    parts[rank()] = rows
    return total(torch.cat(parts))


def total(value: Tensor) -> Tensor:
    """The sum over the processes. Gradients flow."""
    summed: Tensor = _Total.apply(value)  # type: ignore[no-untyped-call]
    return summed


class _Total(torch.autograd.Function):
    """The gradient of a sum over processes is the sum of their gradients."""

    @staticmethod
    def forward(_: Any, value: Tensor) -> Tensor:
        value = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(value)
        return value

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return _Total.forward(_, gradient)


@torch.no_grad()
def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each gradient by its mean over the processes."""
    if count() > 1:
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= count()
        means = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, mean in zip(gradients, means, strict=True):
            gradient.copy_(mean.view_as(gradient))


def share_batch_norms(network: nn.Module) -> None:
    """Let batch norms take their statistics from the whole batch. (torch's SyncBatchNorm needs a GPU.)"""
    if count() > 1:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.__class__ = _WholeBatchNorm


class _WholeBatchNorm(nn.BatchNorm2d):
    """A batch norm over the images of every process."""

    def forward(self, x: Tensor) -> Tensor:
        """(m, c, h, w) → the same shape"""
        if not self.training:
            return super().forward(x)
        flat = x.transpose(0, 1).flatten(1).float()  # (c, m·h·w)
        size = total(torch.tensor(float(flat.shape[1]), device=x.device))
        mean = total(flat.sum(dim=1)) / size  # (c,)
        variance = total((flat - mean[:, None]).square().sum(dim=1)) / size  # (c,)
        if self.running_mean is not None and self.running_var is not None:
            momentum = 0.1 if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.detach(), momentum)
            self.running_var.lerp_(variance.detach() * size / (size - 1), momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1
        scaled = (x - mean[:, None, None]) / (variance[:, None, None] + self.eps).sqrt()
        if self.affine:
            scaled = scaled * self.weight[:, None, None] + self.bias[:, None, None]
        return scaled
