"""Metric names that a backend accepts, without two names falling together.

A name that the backend accepts is logged as it is. Any other is cleaned and gets `-` and six hexadecimal
digits of its own hash, so `pass@1` and `pass#1` stay two curves. The result depends on the name alone: not on
the order of logging, nor on the attempt, so a resumed run goes on with the same curves.
"""

from __future__ import annotations

import hashlib
import re
from typing import Literal

Backend = Literal["mlflow", "wandb", "tensorboard"]

#: MLflow refuses every other character, and keys over 250 characters.
_MLFLOW_REFUSED = re.compile(r"[^/\w.\- :]")
#: W&B takes nearly everything; control characters and backslashes break its own tables and file names.
_WANDB_REFUSED = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]")
#: TensorBoard takes any text; its paths and its pages do not show control characters, and half a surrogate is no text.
_TENSORBOARD_REFUSED = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_REFUSED = {"mlflow": _MLFLOW_REFUSED, "wandb": _WANDB_REFUSED, "tensorboard": _TENSORBOARD_REFUSED}
_MAX_LENGTH = 250
_NUM_HASH_DIGITS = 6
#: A name that looks like a cleaned one is cleaned as well, or it could meet a cleaned one.
_LOOKS_CLEANED = re.compile(rf"-[0-9a-f]{{{_NUM_HASH_DIGITS}}}$")
#: Spelled out, since `pass@8` is the most common of the refused names.
_SPELLED = {"@": "_at_", "%": "_percent"}


def to_backend_name(name: str, backend: Backend) -> str:
    """Turn a metric or parameter name into one that the backend accepts.

    Args:
        name: Any text.
        backend: The tracker it is for.

    Returns:
        The name itself if the backend accepts it, else a cleaned name that ends in a hash of the name.
    """
    refused = _REFUSED[backend]
    if _is_accepted(name, backend, refused):
        return name
    spelled = re.sub("|".join(_SPELLED), lambda found: _SPELLED[found[0]], name)
    parts = [refused.sub("_", part).strip() for part in spelled.split("/")]
    readable = "/".join(part for part in parts if part not in {"", ".", ".."})
    if backend == "wandb":
        readable = readable.lstrip("_")
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_NUM_HASH_DIGITS]
    return f"{readable[: _MAX_LENGTH - _NUM_HASH_DIGITS - 1] or 'unnamed'}-{digits}"


def _is_accepted(name: str, backend: Backend, refused: re.Pattern[str]) -> bool:
    if len(name) > _MAX_LENGTH or refused.search(name) or _LOOKS_CLEANED.search(name):
        return False
    if backend == "wandb" and name.startswith("_"):
        return False  # `_step`, `_runtime`, `_timestamp` are W&B's own.
    # Empty parts and dots make a path that resolves to another name, which MLflow refuses.
    return all(part == part.strip() and part not in {"", ".", ".."} for part in name.split("/"))
