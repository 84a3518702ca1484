"""Files may hold anything. What is not a plain small image is decoded in a process that has limits of memory
and time and can be killed."""

import atexit
import copy
import hashlib
import importlib.util
import os
import signal
import stat
import struct
import subprocess  # nosec B404: it starts this package's own decoder
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from anneal.errors import ArchiveError

Source = Path | bytes
"""A file on disk, or the bytes of one."""
P = ParamSpec("P")
Result = TypeVar("Result")

LARGEST = 1 << 36  # bytes of a file; a scene of 100 000 × 100 000 pixels, three bands of 16 bits, has 60 GB
SMALL = 4_000_000  # pixels of a JPEG or PNG that is decoded in a thread: it takes 100 MB at most
MEMORY = 2 << 30  # bytes to decode a file; a large raster is read by windows and takes far less
SECONDS: float = 60  # to decode a file; a whole strip of a large raster may take some
STARTING = 30  # seconds that a decoder may need to start, on a busy machine
DECODERS = max(2, os.cpu_count() or 1)
HEADER = 1 << 16  # bytes that tell whether a file is plain and small
REMEMBERED = 1000  # files that went past a limit

PNG = b"\x89PNG\r\n\x1a\n"
JPEG = b"\xff\xd8\xff"
inside = False  # whether this process is a decoder

# -- before a file is decoded -----------------------------------------------------------------------


def regular(path: Path) -> None:
    """Refuse what is not a file before it is opened: a pipe would wait for ever, a device may not end."""
    found = path.stat()
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{kinds.get(stat.S_IFMT(found.st_mode), 'a device')}, not a file")
    if found.st_size > LARGEST:
        raise ValueError(f"it is larger than {LARGEST / 2**30:g} GB")


def head(source: Source, count: int = 32) -> bytes:
    """The first bytes of a file, which say what it is."""
    if isinstance(source, bytes):
        return source[:count]
    regular(source)
    with source.open("rb") as file:
        return file.read(count)


def digest_of(path: Path) -> str:
    """The hash of a file's bytes."""
    regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def is_harmless(source: Source) -> bool:
    """Whether a file is a small PNG or baseline JPEG of eight bits, by its first bytes: Pillow decodes it in
    little memory and time, whatever follows."""
    start = head(source, HEADER)
    pixels = _png_pixels(start) if start.startswith(PNG) else _jpeg_pixels(start)
    return 0 < pixels <= SMALL


def _png_pixels(start: bytes) -> int:
    """Zero for a deep one."""
    if len(start) < 26 or start[24] > 8:
        return 0
    width, height = struct.unpack_from(">II", start, 16)
    return int(width * height)


def _jpeg_pixels(start: bytes) -> int:
    """Zero for one that is not baseline, or whose size does not stand at its beginning."""
    at = 2
    while start.startswith(JPEG) and at + 9 <= len(start) and start[at] == 0xFF:
        marker, length, depth, height, width = struct.unpack_from(">BHBHH", start, at + 1)
        if marker in (0xC0, 0xC1):
            return int(width * height) if depth == 8 else 0
        if marker not in (0xC4, 0xDB, 0xDD, 0xFE) and not 0xE0 <= marker <= 0xEF:
            return 0
        at += 2 + length
    return 0


# -- who asks ---------------------------------------------------------------------------------------


class Decoder(NamedTuple):
    """A process that decodes one file at a time."""

    process: subprocess.Popen[bytes]
    pipe: "Connection[Any, Any]"


_slots = threading.BoundedSemaphore(DECODERS)
_idle: deque[Decoder] = deque()
_refused: dict[tuple[Any, ...], str] = {}  # files that went past a limit are not tried again


def limited(
    function: Callable[Concatenate[Source, P], Result],
) -> Callable[Concatenate[Source, P], Result]:
    """A function of a file that runs in a decoder. Arguments and the result are pickled on their way. A file
    that goes past a limit is a ValueError."""

    @wraps(function)
    def run(source: Source, /, *args: P.args, **options: P.kwargs) -> Result:
        if isinstance(source, Path):
            regular(source)
        if inside:
            return function(source, *args, **options)
        key = _key(source)
        with _slots:
            if key in _refused:
                raise ValueError(_refused[key])
            good, value = _answer_of(run, (source, *args), options)
        if isinstance(value, LimitError):
            if len(_refused) >= REMEMBERED:
                _refused.clear()
            _refused[key] = str(value)
        if good:
            result: Result = value
            return result
        raise value

    return run


class LimitError(ValueError):
    """A file needs more than it may have."""


def _key(source: Source) -> tuple[Any, ...]:
    if isinstance(source, bytes):
        return hashlib.blake2b(source, digest_size=16).digest(), MEMORY, SECONDS
    found = source.stat()
    return str(source), found.st_size, found.st_mtime_ns, MEMORY, SECONDS


def _answer_of(*task: Any) -> tuple[bool, Any]:
    """(True, result) or (False, error) of a function, its arguments and its options, in a decoder."""
    decoder = _decoder()
    late = False
    try:
        decoder.pipe.send((task, SECONDS, MEMORY))
        late = not decoder.pipe.poll(SECONDS + STARTING)
        if not late:
            good, value = decoder.pipe.recv()
            if not isinstance(value, LimitError):
                _idle.append(decoder)
                return good, value
            _end(decoder)  # a library may not have got over it
            return good, value
    except (EOFError, OSError):
        pass  # it has ended
    except BaseException:
        _end(decoder)
        raise
    return False, _why_ended(_end(decoder, kill=late), late)


def _why_ended(code: int, late: bool) -> Exception:
    if late or code == -signal.SIGALRM:
        return LimitError(f"it takes more than {SECONDS:g} s to decode")
    if code == -signal.SIGKILL:
        return LimitError(_too_much(MEMORY))
    if code >= 0:
        return ArchiveError("The process that decodes images does not start: reinstall anneal.")
    return LimitError(f"it ends the decoder ({signal.Signals(-code).name})")


def _too_much(memory: int) -> str:
    return f"it needs more than {memory / 2**30:.2g} GB to decode"


def _decoder() -> Decoder:
    """An idle one, or a new one. The last one used comes first: it may have the file open."""
    while _idle:
        with suppress(IndexError):  # another thread was quicker
            decoder = _idle.pop()
            if decoder.process.poll() is None:
                return decoder
            _end(decoder)
    own, other = Pipe()
    code = f"from anneal.archive.safely import serve; serve({other.fileno()})"
    nowhere = subprocess.DEVNULL  # libraries write what files say to standard error
    process = subprocess.Popen(  # nosec B603
        [sys.executable, "-P", "-c", code],
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        pass_fds=[other.fileno()],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    other.close()
    return Decoder(process, own)


def _end(decoder: Decoder, kill: bool = True) -> int:
    """End a decoder; returns its exit code. Without ``kill`` it is ending by itself."""
    decoder.pipe.close()
    if not kill:
        with suppress(subprocess.TimeoutExpired):
            return decoder.process.wait(5)
    decoder.process.kill()
    return decoder.process.wait()


@atexit.register
def end_all() -> None:
    """End the decoders that wait for work."""
    while _idle:
        _end(_idle.pop())


os.register_at_fork(after_in_child=_idle.clear)  # a decoder answers one process


# -- the decoder ------------------------------------------------------------------------------------


def serve(number: int) -> None:
    """Do what comes in through this file descriptor until it is closed. The task's own limits hold: an alarm
    ends the process, even if nobody waits for it any more."""
    global inside
    inside = True
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-c is for the process that asks
    if importlib.util.find_spec("rasterio"):
        importlib.import_module("rasterio")
    importlib.import_module("anneal.archive.sampling")
    used = _address_space()
    pipe = Connection(number)
    with suppress(EOFError, ConnectionError):
        while True:
            task, seconds, memory = pipe.recv()
            _limit_memory(used + memory if used else 0)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            answer = _done(task, memory)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _limit_memory(0)
            pipe.send(answer)


def _done(task: tuple[Any, ...], memory: int) -> tuple[bool, Any]:
    function, args, options = task
    try:
        return True, function(*args, **options)
    except MemoryError:
        return False, LimitError(_too_much(memory))
    except Exception as error:
        try:
            return False, copy.copy(error)  # as it is made anew on the other side
        except (TypeError, ValueError, AttributeError):  # it is not made from its own arguments
            return False, RuntimeError(f"{type(error).__name__}: {error}")


def _address_space() -> int:
    """Bytes of this process's memory, used or not; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _limit_memory(most: int) -> None:
    """Take no more than this; 0 is as much as there is."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most or hard, hard))
