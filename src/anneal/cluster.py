"""Work on a Ray cluster: the functions that run here run there, and results are the same to the last digit.

Every item is one task with one CPU and one thread. A task whose machine fails is given to another one. Files
are read and written by path, so all machines must see the archive and the campaign under the same paths.
"""

import copyreg
import logging
import mmap
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from anneal.errors import AnnealError, UsageError
from anneal.work import Item, Result, Workers, in_order

LOCAL = "local"
PORT = 6379  # of a Ray cluster, unless it was given another one
RETRIES = 5  # of a task whose machine or process is gone
OOM_RETRIES = 1  # of a task that was ended because its machine ran out of memory
AHEAD = 3  # tasks begun for each CPU: more would only hold results in memory
REACH = 5.0  # seconds to wait for an address
LESS = (
    "Start Ray there with fewer CPUs (ray start --num-cpus), so that fewer tasks run at once, use a smaller "
    "--px, or add memory. Then give the same command again: it goes on where it was."
)
ENVIRONMENT = {
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": str(OOM_RETRIES),
}


class ClusterError(AnnealError):
    """The cluster cannot be used, or a task on it could not be carried out."""


@contextmanager
def workers(address: str | None) -> Iterator[Workers | None]:
    """The workers of a cluster, as long as the ``with`` lasts. ``local`` starts Ray on this machine; without
    an address there are none."""
    if address is None:
        yield None
        return
    _connect(address)
    import ray

    copyreg.pickle(np.memmap, _by_path)
    try:
        yield Cluster()
    finally:
        copyreg.dispatch_table.pop(np.memmap)
        ray.shutdown()


def _connect(address: str) -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UsageError("--ray needs Ray: pip install 'anneal[cluster]'.") from None
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        ray.init(address=LOCAL, num_cpus=os.cpu_count(), include_dashboard=False, **options)
        return
    try:
        _reach(address)
        ray.init(address=address, **options)
    except (OSError, ImportError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ClusterError(
            f"No Ray cluster answers at {address!r} ({reason}). Start one with 'ray start --head', give its "
            f"address (host:{PORT}, or auto on one of its machines), or use --ray {LOCAL}."
        ) from error


def _reach(address: str) -> None:
    """Refuse an address where nobody listens: Ray itself would try for a long time."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        if not port.isdigit():
            raise ValueError(f"{port!r} is no port")
        socket.create_connection((host, int(port)), REACH).close()


class Cluster:
    """The workers of the cluster that this process is connected to."""

    def map(self, step: str, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        import ray

        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        sent = ray.put(work)
        ahead = AHEAD * int(resources.get("CPU", 1))
        return in_order(partial(_task(step).remote, sent), partial(_result, step), items, ahead)

    def submit(self, step: str, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        future: Future[Result] = Future()

        def finish(done: Future[Result]) -> None:
            try:
                future.set_result(_result(step, done))
            except BaseException as error:
                future.set_exception(error)

        _task(step).remote(work, item).future().add_done_callback(finish)
        return future


def _task(step: str) -> Any:
    import ray

    options = {"num_cpus": 1, "max_retries": RETRIES, "name": f"anneal: {step}"}
    return ray.remote(_run).options(**options)


def _run(work: Callable[[Item], Result], item: Item) -> Result:
    """On a worker: one item, in one thread. GPUs are not given to tasks."""
    os.environ["ANNEAL_DEVICE"] = "cpu"
    with threadpool_limits(1):
        return work(item)


def _result(step: str, task: Any) -> Any:
    """What a task returned: of a reference, or of a future that is done. Its errors are for people."""
    import ray
    from ray import exceptions

    try:
        return task.result() if isinstance(task, Future) else ray.get(task)
    except exceptions.WorkerCrashedError as error:
        raise ClusterError(
            f"A task ({step}) was killed each time it was tried, most often for lack of memory. {LESS}"
        ) from error
    except exceptions.OutOfMemoryError as error:
        raise ClusterError(f"A task ({step}) ran out of memory on its machine. {LESS}") from error
    except exceptions.RayTaskError as error:
        if isinstance(error.cause, MemoryError):
            raise ClusterError(f"A task ({step}) ran out of memory on its machine. {LESS}") from error
        raise error.cause from None
    except exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        raise ClusterError(
            f"Ray could not do a task ({step}): {reason}. All machines need the same anneal and must see the "
            "archive and the campaign under the same paths. Then give the same command again: it goes on "
            "where it was."
        ) from error


def _by_path(array: Any) -> tuple[Any, ...]:
    """How a memory-mapped array is pickled: as its file and the place in it. A part with gaps, and what was
    computed from one, are copied."""
    if array._mmap is None or not array.flags.c_contiguous:
        return np.asarray, (np.asarray(array),)
    start = np.frombuffer(array._mmap, np.uint8).ctypes.data
    mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = array.ctypes.data - start + mapped_from
    return _mapped, (str(array.filename), array.dtype, offset, array.shape)


def _mapped(file: str, dtype: Any, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    return np.memmap(file, dtype, "r", offset, shape)
