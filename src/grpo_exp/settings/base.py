"""What all settings share: frozen, no unknown keys, and text from a shell read with care."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat
from pydantic_core import PydanticCustomError


class Settings(BaseModel):
    """Base of every settings model.

    The text under a field documents it; pydantic does not read it, which would cost a tenth of a second at each start.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), strict=False)


def null_from_text(value: Any) -> Any:
    """Turn the texts that people type for null into None (`ckpt=None` must not become a folder 'None')."""
    if isinstance(value, str) and value.strip().lower() in {"none", "null", "~", ""}:
        return None
    return value


def refuse_bool(value: Any) -> Any:
    """Refuse true and false where a number is wanted; pydantic would read them as 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("number_not_boolean", "a number is wanted, not a boolean")
    return value


def text_only(value: Any) -> Any:
    """Refuse what is no plain text: a number that lost its spelling on the way here, bytes that no file can hold.

    `1e3`, `007` and `3.10` were read as numbers by the time they arrive.
    """
    if isinstance(value, bool | int | float):
        raise ValueError(f"text is wanted and {value!r} was read as a {type(value).__name__}; quote it: \"'...'\"")
    if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("holds a NUL or a byte that is not UTF-8; neither is text; leave it out")
    return value


def not_blank(value: str) -> str:
    """Refuse text without a visible character."""
    if not value.strip():
        raise ValueError("is empty and a text is wanted; leave the setting out to get its default")
    return value


def expandable(value: str) -> str:
    """Refuse a path that starts with the home folder of nobody."""
    try:
        Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError("starts with ~ and there is no such user; write the folder in full") from error
    return value


NoneText = BeforeValidator(null_from_text)
Text = Annotated[str, BeforeValidator(text_only)]
OptionalText = Annotated[str | None, BeforeValidator(text_only), NoneText]
FilledText = Annotated[Text, AfterValidator(not_blank)]
PathText = Annotated[FilledText, AfterValidator(expandable)]
OptionalPath = Annotated[PathText | None, NoneText]

# Bounds belong to the fields, each at most once: pydantic tells only one of two lower bounds, perhaps the wrong one.
Int = Annotated[int, BeforeValidator(refuse_bool)]
Float = Annotated[FiniteFloat, BeforeValidator(refuse_bool)]
Fraction = Annotated[Float, Field(ge=0, le=1)]
FractionBelowOne = Annotated[Float, Field(ge=0, lt=1)]
PositiveFraction = Annotated[Float, Field(gt=0, le=1)]
