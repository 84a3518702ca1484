"""A disk that is full, for tests."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_file_over(size: int) -> Iterator[None]:
    """Act like a full disk: no file may grow past ``size`` bytes. Writing more gives EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
