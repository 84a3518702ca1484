"""What a value in a request may be: every number fits into the database, every text has an end."""

from typing import Annotated

from pydantic import AfterValidator, Field

LARGEST = 2**53 - 1  # every reader of JSON agrees on whole numbers up to this one


def _whole(text: str) -> str:
    """Refuse half of a character (a lone surrogate): JSON can write it, and nothing can store it."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("a character is cut in half")
    return text


Number = Annotated[int, Field(ge=0, le=LARGEST)]
ImageId = Number
RowId = Number
Milliseconds = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_whole)]
Key = Annotated[str, Field(min_length=8, max_length=80), AfterValidator(_whole)]
Text = Annotated[str, Field(max_length=200), AfterValidator(_whole)]
ManyIds = Annotated[str, Field(max_length=9000, pattern="^[0-9,]*$")]  # longer addresses are not read
