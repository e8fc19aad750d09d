"""Compare a returned value with the expected one, which usually comes from JSON.

The returned value stays in the form of `plain`, as the program's sandbox sent it: building it here would let a program
choose what this process spends memory and time on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

from grpo_exp.rewards.code.plain import to_plain

_RELATIVE_TOLERANCE = 1e-9


def is_same_value(expected: Any, returned: Any) -> bool:
    """Tell whether a value is the expected one, with the same type.

    Three things are forgiven, since the expected value was JSON once: a tuple for a list, an integer for a float of the
    same value, and integer keys for their decimal text. Floats may differ by a relative 1e-9, which is the order of the
    operations and no more.

    Args:
        expected: Plain data from the data set, not nested deeper than `plain` allows.
        returned: What `plain.to_plain` made of the returned value, or anything else that is JSON.
    """
    if isinstance(expected, float):
        return type(returned) in {int, float} and _is_close(expected, returned)
    if isinstance(expected, Mapping):
        pairs = _content(returned, "dict")
        return pairs is not None and len(pairs) == len(expected) and _has_pairs(expected, pairs)
    if isinstance(expected, Set):
        items = _content(returned, type(expected).__name__)
        wanted = sorted(json.dumps(to_plain(member)) for member in expected)
        return items is not None and len(items) == len(wanted) and sorted(map(_spell, items)) == wanted
    if isinstance(expected, Sequence) and not isinstance(expected, str | bytes | bytearray | range):
        items = returned if isinstance(returned, list) else _content(returned, "tuple")
        return (
            items is not None
            and len(items) == len(expected)
            and all(is_same_value(*pair) for pair in zip(expected, items, strict=True))
        )
    plain = to_plain(expected)
    return type(returned) is type(plain) and returned == plain


def _spell(item: Any) -> str:
    try:
        return json.dumps(item)
    except RecursionError:  # nested more deeply than any expected value
        return ""


def _content(returned: Any, kind: str) -> list[Any] | None:
    """Return the items of a value of a kind."""
    if not isinstance(returned, dict) or list(returned) != [kind]:
        return None
    items = returned[kind]
    return items if isinstance(items, list) else None


def _is_close(expected: float, returned: float) -> bool:
    try:
        both_nan = math.isnan(expected) and math.isnan(returned)
        return both_nan or math.isclose(expected, returned, rel_tol=_RELATIVE_TOLERANCE)
    except OverflowError:  # an integer beyond every float
        return False


def _has_pairs(expected: Mapping[Any, Any], pairs: list[Any]) -> bool:
    """Tell whether pairs of key and value are the expected ones, each once."""
    left = dict(expected)
    has_text_keys = all(isinstance(key, str) for key in left)
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str | int | None):
            return False
        key, value = pair
        if has_text_keys and type(key) is int:
            key = str(key)
        if key not in left or not is_same_value(left.pop(key), value):
            return False
    return not left


def is_same_text(expected: str, written: str) -> bool:
    """Tell whether two outputs are the same words; blanks and line breaks only separate them."""
    return expected.split() == written.split()
