"""A fingerprint of the code that gives the reward: curves of two versions of it must not be compared unknowingly."""

from __future__ import annotations

import hashlib
from pathlib import Path

from grpo_exp import rewards
from grpo_exp.rewards.python_function import source_file
from grpo_exp.settings.reward import RewardSettings

NUM_DIGITS = 16


def source_hash(settings: RewardSettings) -> str:
    """Return 16 hex digits over the scorers' source files and those of the user's reward functions.

    Comments count, too. What a user's module imports does not: only the file of the module itself is read.
    """
    root = Path(rewards.__path__[0])
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        _add(digest, path.relative_to(root).as_posix(), path)
    for name, component in sorted(settings.components.items()):
        if component.kind == "python":
            source = source_file(component.function)
            if source is not None:
                _add(digest, f"component {name}", source)
    return digest.hexdigest()[:NUM_DIGITS]


def _add(digest: hashlib._Hash, name: str, path: Path) -> None:
    content = path.read_bytes()
    digest.update(f"{name}\0{len(content)}\0".encode())
    digest.update(content)
