"""Who tries tokens, and how long to wait before the next try."""

import hashlib
import ipaddress
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FREE = 5  # wrong tokens of one address that cost nothing: people mistype, and tokens change
LONGEST = 300.0  # seconds of one wait, at most
FORGET = 3600.0  # seconds after the last wrong token of an address
ADDRESSES = 10_000  # that are remembered, at most


def source(address: str) -> str:
    """The network that an address stands for. One household has 2⁶⁴ addresses of IPv6."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((known, 64), strict=False)) if known.version == 6 else address


@dataclass
class _Tries:
    tokens: set[bytes] = field(default_factory=set)
    last: float = 0.0
    until: float = 0.0


class Guesses:
    """Wrong tokens of each address. After ``FREE`` different ones each new one doubles the wait, during which
    no token of that address is looked at. A page that keeps sending its old token has guessed once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: dict[str, _Tries] = {}  # the address with the oldest guess first

    def wait(self, address: str) -> float:
        """Seconds until this address may try again."""
        tries = self._tries.get(source(address))
        return 0.0 if tries is None else max(tries.until - self._clock(), 0.0)

    def add(self, address: str, token: str) -> None:
        """This token was wrong."""
        now = self._clock()
        tries = self._tries.pop(source(address), _Tries())
        if now - tries.last > FORGET:
            tries = _Tries()
        guess = hashlib.blake2b(token.encode(), digest_size=8).digest()
        if guess not in tries.tokens:
            tries.tokens.add(guess)
            more = len(tries.tokens) - FREE
            tries.until = now + (min(2.0 ** (more - 1), LONGEST) if more > 0 else 0.0)
        tries.last = now
        self._tries[source(address)] = tries
        if len(self._tries) > ADDRESSES:
            del self._tries[next(iter(self._tries))]
