"""Where the parts of a long step are worked on: in threads here, or by workers on other machines."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Begun = TypeVar("Begun")
Result = TypeVar("Result")


class Workers(Protocol):
    """Processes that see the same files, on this machine or on others (``cluster.Cluster``). Functions, items
    and results are pickled on their way; a memory-mapped array goes as the path of its file."""

    def map(self, step: str, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """As ``in_order`` does it. ``step`` names the work in messages. ``work`` is sent once."""
        ...

    def submit(self, step: str, work: Callable[[Item], Result], item: Item) -> Future[Result]: ...


def in_order(
    start: Callable[[Item], Begun], finish: Callable[[Begun], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """The result of each item, in the order of the items, with ``ahead`` of them begun at a time. An item is
    taken when its turn comes, so it may depend on results that were given before."""
    waiting = iter(items)
    begun = deque(start(item) for item in islice(waiting, ahead))
    while begun:
        yield finish(begun.popleft())
        begun.extend(start(item) for item in islice(waiting, 1))


def in_threads(threads: int, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``in_order`` in threads of this process."""
    with ThreadPoolExecutor(threads) as pool:
        yield from in_order(lambda item: pool.submit(work, item), Future.result, items, threads + 1)


def blas_threads() -> int:
    """The number of threads that a matrix product may have now."""
    from threadpoolctl import threadpool_info

    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return min((int(library["num_threads"]) for library in blas), default=1)
