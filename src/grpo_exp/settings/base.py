"""What all settings share: frozen, no unknown keys, and text from a shell read with care."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat


class Settings(BaseModel):
    """Base of every settings model."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=(), strict=False
    )


def null_from_text(value: Any) -> Any:
    """Turn the texts that people type for null into None (`ckpt=None` must not become a folder 'None')."""
    if isinstance(value, str) and value.strip().lower() in {"none", "null", "~", ""}:
        return None
    return value


def refuse_bool(value: Any) -> Any:
    """Refuse true and false where a number is wanted; pydantic would read them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted, not a boolean")
    return value


def text_only(value: Any) -> Any:
    """Refuse a number where text is wanted: `1e3`, `007` and `3.10` lost their spelling on the way here."""
    if isinstance(value, bool | int | float):
        raise ValueError(f"text is wanted and {value!r} was read as a {type(value).__name__}; quote it: \"'...'\"")
    return value


NoneText = BeforeValidator(null_from_text)
Text = Annotated[str, BeforeValidator(text_only)]
OptionalText = Annotated[str | None, BeforeValidator(text_only), NoneText]
Float = Annotated[FiniteFloat, BeforeValidator(refuse_bool)]
Int = Annotated[int, BeforeValidator(refuse_bool)]
PositiveInt = Annotated[int, BeforeValidator(refuse_bool), Field(ge=1)]
NonNegativeInt = Annotated[int, BeforeValidator(refuse_bool), Field(ge=0)]
PositiveFloat = Annotated[FiniteFloat, BeforeValidator(refuse_bool), Field(gt=0)]
NonNegativeFloat = Annotated[FiniteFloat, BeforeValidator(refuse_bool), Field(ge=0)]
Fraction = Annotated[FiniteFloat, BeforeValidator(refuse_bool), Field(ge=0, le=1)]
OptionalPositiveInt = Annotated[PositiveInt | None, NoneText]
OptionalPositiveFloat = Annotated[PositiveFloat | None, NoneText]
OptionalFloat = Annotated[Float | None, NoneText]
