"""The machine's process beside the page: it is started again if it dies, and replaced if it is silent."""

import subprocess  # nosec B404: it starts this package's own worker
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from anneal.campaign.campaign import FILE
from anneal.campaign.store import Mailbox, Store
from anneal.errors import AnnealError

GRACE = 5.0  # seconds for the machine's process to end by itself
STEADY = 600.0  # seconds after which a process that dies is started again at once
LONGEST_WAIT = 60.0  # seconds before a start, at most
STARTING = 600.0  # seconds until its first sign of life: it loads torch, or waits for another one to end
HUNG = 120.0  # seconds without a sign of life until the process is replaced; it gives one every two seconds


def keep_running(folder: Path, ending: threading.Event, strategy: str | None = None) -> None:
    """Run the machine's process until ``ending`` is set. It ends when its standard input is closed, so also
    if this process is killed. A ``strategy`` from outside anneal has to be named."""
    # With -P no module comes from the current folder, which may be a stranger's.
    command = [sys.executable, "-P", "-m", "anneal", "worker", "--campaign", str(folder)]
    if strategy is not None:
        command += ["--strategy", strategy]
    wait = 1.0
    while not ending.is_set():
        # In a session of its own: ctrl-c is for this process only, which then ends the other one.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # nosec B603
        started = time.monotonic()
        silent = _watch(folder, process, ending)
        if ending.is_set():
            _end(process, GRACE)
            return
        _end(process, 0)  # it may be stopped, so it is killed
        wait = 1.0 if time.monotonic() - started > STEADY else min(2 * wait, LONGEST_WAIT)
        about = {"silent": True} if silent else {"code": process.returncode}
        with suppress(AnnealError):  # the disk may be the reason why it died
            store = Store(folder / FILE)
            Mailbox(store).set_machine(state="restarting", **about)
            store.close()
        ending.wait(wait)


def _watch(folder: Path, process: subprocess.Popen[bytes], ending: threading.Event) -> bool:
    """Wait until the process ends, or ``ending`` is set, or it is silent for too long: only then it returns
    True. The clock stands still while this computer sleeps."""
    said = _last_sign(folder)
    heard = time.monotonic()
    patience = STARTING
    looked = 0.0
    while process.poll() is None and not ending.wait(0.2):
        now = time.monotonic()
        if now - looked > HUNG / 10:
            looked = now
            last = _last_sign(folder)
            if last != said:
                said = last
                heard = now
                patience = HUNG
        if now - heard > patience:
            return True
    return False


def _last_sign(folder: Path) -> float | None:
    """When the machine last said something. None if that cannot be read now."""
    try:
        store = Store(folder / FILE)
        try:
            return Mailbox(store).machine()[0]
        finally:
            store.close()
    except AnnealError:
        return None


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """Close its standard input, and kill it if it does not end."""
    try:
        process.communicate(timeout=grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
