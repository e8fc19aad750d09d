"""What the small files of a run's model say: how prompts are written, what is a token, where a completion ends.

A resumed run reads them again. Weights alone tell nothing of them: a template is edited, and the policy answers others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from grpo_exp.settings.model import ModelSettings, PretrainedModel, location_of
from grpo_exp.settings.pretrained_model import PLAIN

#: Files of a model's folder that decide about prompts, tokens and shape, as transformers names them.
_PATTERNS = (
    "config.json", "generation_config.json", "tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab*",
    "merges.txt", "*.jinja", "*.model",
)  # fmt: skip
_NUM_DIGITS = 16


def texts_of(model: ModelSettings) -> dict[str, str]:
    """Return the setting that names files -> 16 hex digits over their content; nothing of files that are not here."""
    found: dict[str, str] = {}
    folder = location_of(model)
    if folder is not None and Path(folder).is_dir():
        name = "model.path" if model.prime_from is None else "model.prime_from"
        paths = {path for pattern in _PATTERNS for path in Path(folder).glob(pattern) if path.is_file()}
        found[name] = _digest(sorted(paths))
    if isinstance(model, PretrainedModel) and model.chat_template is not None and model.chat_template != PLAIN:
        template = Path(model.chat_template).expanduser()
        if template.is_file():
            found["model.chat_template"] = _digest([template])
    return found


def changed_text(then: Mapping[str, str], model: ModelSettings) -> str | None:
    """Return `SETTING=VALUE` of files that are not as they were, or None.

    Args:
        then: What `texts_of` returned when the run began.
        model: Of the run.
    """
    now = texts_of(model)
    changed = next((name for name, digest in then.items() if now.get(name, digest) != digest), None)
    return None if changed is None else f"{changed}={getattr(model, changed.removeprefix('model.'))}"


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_NUM_DIGITS]
