"""Values as JSON that says their exact type, between processes that do not trust each other.

Null, booleans, small integers, floats, text and lists are JSON's own. Everything else is an object with one key, the
type: `{"tuple": [...]}`, `{"set": [...]}`, `{"dict": [[key, value], ...]}`, `{"int": "hexadecimal"}` and so on. What is
none of these is `{"object": number}`, if the caller keeps such objects.

Runs inside the sandbox too, so it imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

_MAX_DEPTH = 60
_MAX_ITEMS = 1_000_000
_SMALL = 2**53


class NotPlainError(ValueError):
    """A value that is no plain data, or text that encodes none."""


def to_plain(value: Any, keep: Callable[[Any], int] | None = None, *, depth: int = 0) -> Any:
    """Return a value as JSON can hold it; a subclass of a plain type becomes that type.

    Args:
        value: Any value.
        keep: Returns the number of an object that is not plain data; None refuses such objects.
        depth: Of the recursion.

    Raises:
        NotPlainError: It is not plain data, or too large or too deep.
    """
    if depth > _MAX_DEPTH:
        raise NotPlainError("nested too deeply")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        number = int(value)
        return number if -_SMALL < number < _SMALL else {"int": hex(number)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return _items(value, keep, depth)
    if isinstance(value, dict):
        return {"dict": [_items(pair, keep, depth) for pair in list(value.items())]}
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: _items(value, keep, depth)}
    return _rare(value, keep)


def _items(values: Any, keep: Callable[[Any], int] | None, depth: int) -> list[Any]:
    if len(values) > _MAX_ITEMS:
        raise NotPlainError("too many items")
    return [to_plain(value, keep, depth=depth + 1) for value in values]


def _rare(value: Any, keep: Callable[[Any], int] | None) -> dict[str, Any]:
    if isinstance(value, bytes | bytearray):
        return {type(value).__name__: value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, range):
        return {"range": [hex(number) for number in (value.start, value.stop, value.step)]}
    if isinstance(value, Decimal):
        return {"Decimal": str(value)}
    if isinstance(value, Fraction):
        return {"Fraction": [hex(value.numerator), hex(value.denominator)]}
    if keep is None:
        raise NotPlainError(f"a {type(value).__name__} is no plain data")
    return {"object": keep(value)}


def from_plain(data: Any, find: Callable[[int], Any] | None = None, *, depth: int = 0) -> Any:
    """Return the value that `to_plain` wrote.

    Args:
        data: What `json.loads` returned.
        find: Returns the object of a number; None refuses objects.
        depth: Of the recursion.

    Raises:
        NotPlainError: It is not what `to_plain` writes.
    """
    if depth > 4 * _MAX_DEPTH:  # one level of a value takes up to three here
        raise NotPlainError("nested too deeply")
    if isinstance(data, list):
        return [from_plain(item, find, depth=depth + 1) for item in data]
    if not isinstance(data, dict):
        return data
    try:
        ((kind, content),) = data.items()
        if kind == "object" and find is not None:
            return find(content)
        return _READERS[kind](from_plain(content, find, depth=depth + 1))
    except NotPlainError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise NotPlainError(f"not plain data: {error!r}") from error


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "complex": lambda parts: complex(*parts),
    "range": lambda parts: range(*(int(part, 16) for part in parts)),
    "Decimal": Decimal,
    "Fraction": lambda parts: Fraction(*(int(part, 16) for part in parts)),
}
