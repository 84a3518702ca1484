"""Numbers in sentences."""


def count(n: int, one: str, many: str = "") -> str:
    """``1 answer``, ``2 answers``, ``1,234 answers``; ``many`` where an s is not enough."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
