"""Work on a real Ray cluster of two machines, which are processes here, gives what one process gives."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from numpy.typing import NDArray
from ray.cluster_utils import Cluster as Machines

from anneal import cluster
from anneal.archive.catalog import Archive
from anneal.cluster import ClusterError
from anneal.errors import UsageError
from anneal.experiments.play import Player
from anneal.experiments.runner import run, trials_of
from anneal.method.mining import Mined
from anneal.method.neighbours import unit
from anneal.method.relations import full
from anneal.method.similarity import Similarity
from anneal.method.snapshot import Snapshot
from anneal.method.strategies import chosen
from anneal.method.tiles import mine_near
from anneal.network import backbones, encode, onnx
from anneal.pairs import Answers, Pairs
from anneal.settings import Settings
from anneal.work import Workers, in_order

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning:ray"),
]
MACHINE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}
NETWORK = "random:resnet-18"


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """A cluster of two machines with one CPU each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # tasks import this module
        for name, value in cluster.ENVIRONMENT.items():
            patch.setenv(name, value)
        made = Machines(initialize_head=True, head_node_args={**MACHINE, "include_dashboard": False})
        made.add_node(**MACHINE)
        yield made
        made.shutdown()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def workers(machines: Machines) -> Iterator[Workers]:
    with cluster.workers(machines.address) as connected:
        assert connected is not None
        yield connected


def machine() -> str:
    return str(ray.get_runtime_context().get_node_id())


def meet(folder: Path, item: int) -> str:
    """The machine of this task, once the other of two tasks has begun. A machine has one CPU, so they meet
    only if they run on two machines, however long the second one takes to start."""
    (folder / str(item)).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    return machine()


def double(item: int) -> int:
    return 2 * item


# -- tasks -------------------------------------------------------------------------------------------


def test_results_come_in_order_from_both_machines(workers: Workers, tmp_path: Path) -> None:
    assert list(workers.map("doubling", double, range(20))) == list(range(0, 40, 2))
    assert len(set(workers.map("meeting", partial(meet, tmp_path), range(2)))) == 2
    assert workers.submit("doubling", double, 21).result() == 42


def test_items_are_taken_when_their_turn_comes() -> None:
    given: list[int] = []
    taken: list[tuple[int, int]] = []

    def items() -> Iterator[int]:
        for i in range(7):
            taken.append((i, len(given)))
            yield i

    for result in in_order(double, lambda begun: begun + 1, items(), ahead=3):
        given += [result]
    assert given == [1, 3, 5, 7, 9, 11, 13]
    assert taken == [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 3), (6, 4)]


def test_a_memory_mapped_array_goes_as_the_path_of_its_file(workers: Workers, tmp_path: Path) -> None:
    numbers = np.arange(3000, dtype=np.int32).reshape(1000, 3)
    numbers.tofile(tmp_path / "numbers.bin")
    mapped = np.memmap(tmp_path / "numbers.bin", np.int32, "r", shape=(1000, 3))
    later = np.memmap(tmp_path / "numbers.bin", np.int32, "r", offset=4800, shape=(600, 3))
    for part in (mapped, mapped[7:9], later[5:], mapped[4]):
        assert len(pickle.dumps(part)) < 400
        kind, seen = next(workers.map("reading", partial(as_seen, part), [0]))
        assert kind is np.memmap
        np.testing.assert_array_equal(seen, part)
    for part in (mapped[:, 1:], mapped[::2], mapped + 1):  # with gaps, or in memory only
        kind, seen = next(workers.map("reading", partial(as_seen, part), [0]))
        assert kind is np.ndarray
        np.testing.assert_array_equal(seen, part)


def as_seen(array: NDArray[Any], item: int) -> tuple[type, NDArray[Any]]:
    return type(array), np.array(array)


# -- the same as in one process ------------------------------------------------------------------------


@pytest.mark.parametrize("in_onnx", [True, False])
def test_features_are_those_of_one_process_byte_for_byte(
    in_onnx: bool, workers: Workers, small_archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "SAVED", 16)
    monkeypatch.setattr(encode, "MANY", 1 if in_onnx else 10**9)
    backbone = backbones.load(NETWORK, "cpu")
    alone = replace(small_archive, folder=tmp_path / "alone")
    together = replace(small_archive, folder=tmp_path / "together")
    seen: list[int] = []
    expected = encode.inputs(alone, backbone, "head")
    features = encode.inputs(
        together, backbone, "head", lambda done, total: seen.append(done), workers=workers
    )
    assert features.tobytes() == expected.tobytes()
    assert np.ptp(features) > 0
    assert seen == [16, 32, 48, 64, 80, 96, 112, 120]
    assert onnx.file_of(together.folder, backbone, "head", 32).exists() == in_onnx


def some_snapshot(n: int, workers: Workers | None = None) -> Snapshot:
    rng = np.random.default_rng(3)
    vectors = unit(rng.normal(size=(n, 6)).astype(np.float32))
    i, j = rng.integers(n, size=(2, 60))
    pairs = Pairs.of(i[i != j], j[i != j])
    answers = Answers.of(pairs, rng.integers(1, 3, len(pairs)))
    known = full(n, answers).relations
    return Snapshot(vectors, np.arange(n), known, answers, np.zeros(len(answers), np.int64), workers=workers)


def test_pairs_are_those_that_one_process_mines(workers: Workers) -> None:
    shown = some_snapshot(300)

    def mined(**where: Any) -> Mined:
        measure = Similarity(shown.vectors, 0.2)
        return mine_near(measure, shown.images, shown.known, 40, np.random.default_rng(1), size=60, **where)

    here = mined(threads=2)
    there = mined(workers=workers)
    assert len(here) == 40
    assert list(there.pairs) == list(here.pairs)
    assert there.scores.tolist() == here.scores.tolist()


def test_a_strategy_plans_the_same_with_workers(workers: Workers) -> None:
    plan = chosen(Settings(strategy="mgue")).plan
    here = plan(some_snapshot(200), 12, np.random.default_rng(5))
    there = plan(some_snapshot(200, workers), 12, np.random.default_rng(5))
    assert len(here.pairs) == 12
    assert list(there.pairs) == list(here.pairs)


@pytest.mark.usefixtures("one_process")
def test_trials_are_those_of_one_process(
    workers: Workers, small_archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(px=32, per_round=12, backbone=NETWORK, strategy="mgue")
    players = {"mgue": Player(settings, rounds=0)}
    told: list[tuple[int, int]] = []
    monkeypatch.chdir(tmp_path)
    run(small_archive, trials_of(small_archive, players, Path("here"), 2), jobs=1)
    run(
        small_archive,
        trials_of(small_archive, players, Path("there"), 2),
        jobs=1,
        tell=lambda row: told.append((row["trial"], row["round"])),
        workers=workers,
    )
    assert sorted(told) == [(0, 0), (1, 0)]
    assert Path("there/curve.csv").read_bytes() == Path("here/curve.csv").read_bytes()


# -- what goes wrong -----------------------------------------------------------------------------------


def refuse(item: int) -> None:
    raise UsageError(f"{item} is not a size")


def fill_memory(item: int) -> None:
    raise MemoryError


def fail(item: int) -> None:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize(
    ("work", "error", "message"),
    [
        (refuse, UsageError, "^7 is not a size$"),
        (fail, ZeroDivisionError, "^a bug$"),
        (fill_memory, ClusterError, r"^A task \(trying\) ran out of memory.*ray start --num-cpus.*--px"),
    ],
)
def test_an_error_of_a_task_is_that_of_one_process(
    work: Callable[[int], None], error: type[Exception], message: str, workers: Workers
) -> None:
    with pytest.raises(error, match=message):
        list(workers.map("trying", work, [7]))
    with pytest.raises(error, match=message):
        workers.submit("trying", work, 7).result()


def slowly(marks: Path, block: Callable[[slice], NDArray[Any]], part: slice) -> NDArray[Any]:
    """A block of features; a file says that it is worked on, and on which machine."""
    with (marks / machine()).open("a") as log:
        log.write(f"{part.start}\n")
    time.sleep(0.4)
    return block(part)


class Slow:
    """Workers that take their time, so that one can be killed in the middle."""

    def __init__(self, workers: Workers, marks: Path) -> None:
        self.workers = workers
        self.marks = marks

    def map(self, step: str, work: Any, items: Any) -> Any:
        return self.workers.map(step, partial(slowly, self.marks, work), items)

    def submit(self, step: str, work: Any, item: Any) -> Any:
        raise NotImplementedError


def test_a_machine_killed_in_the_middle_changes_nothing(
    machines: Machines,
    workers: Workers,
    small_archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encode, "SAVED", 8)
    backbone = backbones.load(NETWORK, "cpu")
    expected = encode.inputs(replace(small_archive, folder=tmp_path / "alone"), backbone, "head")
    doomed = machines.add_node(**MACHINE)
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill() -> None:
        while not (marks / doomed.node_id).exists():
            time.sleep(0.02)
        machines.remove_node(doomed, allow_graceful=False)

    killing = threading.Thread(target=kill, daemon=True)
    killing.start()
    features = encode.inputs(
        replace(small_archive, folder=tmp_path / "killed"), backbone, "head", workers=Slow(workers, marks)
    )
    killing.join()
    assert features.tobytes() == expected.tobytes()
    begun = {file.name: file.read_text().split() for file in marks.iterdir()}
    lost = begun.pop(doomed.node_id)
    others = [start for starts in begun.values() for start in starts]
    assert set(lost) & set(others), "what the killed machine had begun was begun again"
    assert {int(start) for start in others + lost} == set(range(0, 120, 8))


def wait_a_minute(item: int) -> None:
    time.sleep(60)


OUT_OF_MEMORY = """
import test_cluster
from anneal import cluster
with cluster.workers("local") as workers:
    try:
        list(workers.map("waiting", test_cluster.wait_a_minute, [1]))
    except cluster.ClusterError as error:
        print(error)
"""


def in_new_process(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(sys.path)
    env = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(
        [sys.executable, *command], env=env, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_task_that_ray_ends_for_lack_of_memory_is_explained() -> None:
    """Ray's own monitor ends the task: memory is used to more than a thousandth on any machine."""
    done = in_new_process("-c", OUT_OF_MEMORY, RAY_memory_usage_threshold="0.001")
    said = done.stdout.splitlines()[-1]
    assert said.startswith("A task (waiting) ran out of memory on its machine. Start Ray there"), done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nobody.invalid:6379", "somewhere", "ray://127.0.0.1:1"])
def test_a_cluster_that_does_not_answer_is_named(address: str) -> None:
    with (
        pytest.raises(ClusterError, match=f"No Ray cluster answers at '{address}'.*ray start --head"),
        cluster.workers(address),
    ):
        pass


def test_without_ray_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'anneal\[cluster\]'"), cluster.workers("local"):
        pass


def test_without_an_address_there_are_no_workers() -> None:
    with cluster.workers(None) as none:
        assert none is None


# -- the command line ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("one_process")
def test_simulate_starts_ray_here_and_plays_the_same(
    small_archive: Archive, drawn: Path, cache: Path, tmp_path: Path
) -> None:
    words = f"simulate {drawn} --strategy random --rounds 0 --per-round 20 --px 32 --backbone {NETWORK}"
    paths = ["--cache", str(cache), "--out", str(tmp_path / "there")]
    done = in_new_process("-m", "anneal", *words.split(), *paths, "--ray", "local")
    assert (done.returncode, done.stderr) == (0, "")
    assert "random trial 0 round 0:    20 bits" in done.stdout
    settings = Settings(px=32, per_round=20, backbone=NETWORK, strategy="random")
    players = {"random": Player(settings, rounds=0)}
    run(small_archive, trials_of(small_archive, players, tmp_path / "here", 1, inner=True), jobs=1)
    curve = (tmp_path / "there" / "curve.csv").read_bytes()
    assert curve == (tmp_path / "here" / "curve.csv").read_bytes()
