"""Numbers in sentences."""

import pytest

from anneal.words import count


@pytest.mark.parametrize(
    ("n", "words", "text"),
    [
        (0, ("answer",), "0 answers"),
        (1, ("answer",), "1 answer"),
        (2, ("answer",), "2 answers"),
        (1234, ("class", "classes"), "1,234 classes"),
        (1, ("image is", "images are"), "1 image is"),
    ],
)
def test_one_has_no_s(n: int, words: tuple[str, ...], text: str) -> None:
    assert count(n, *words) == text
