"""Settings as MLflow parameters: flat, short, and the same value in another spelling is no change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

#: What every MLflow server takes; newer ones take 6000 characters and cut the rest without a word.
MAX_PARAM_CHARACTERS = 250


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested settings into `{"trainer.learning_rate": 1e-6}`; lists and empty groups are values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def to_param_text(value: Any, artifact: str) -> tuple[str, bool]:
    """Write a setting as MLflow parameter.

    Args:
        value: The setting; what is no text is written as JSON.
        artifact: Where the whole value is kept if it is too long.

    Returns:
        At most MAX_PARAM_CHARACTERS characters, and whether the value had to be cut.
    """
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    if len(text) <= MAX_PARAM_CHARACTERS:
        return text, False
    # The digits tell apart what differs behind the cut only.
    digits = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    mark = f" [cut, {len(text)} characters, {digits}: {artifact[-120:]}]"
    return text[: MAX_PARAM_CHARACTERS - len(mark)] + mark, True


def is_same_param(left: str, right: str) -> bool:
    """Tell whether two parameter texts mean one value: `1` and `1.0` do."""
    if left == right:
        return True
    try:
        return float(left) == float(right)
    except ValueError:
        return False


def without_password(uri: str) -> str:
    """Return a URI with stars in place of its password."""
    password = urlsplit(uri).password
    return uri if password is None else uri.replace(f":{password}@", ":***@", 1)
