"""Golden files: `UPDATE_GOLDEN=1 pytest tests/golden` writes them anew; read the difference before committing it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture
def check_golden() -> Callable[[str, str], None]:
    """Return `check(file name, text)`, which compares, or with UPDATE_GOLDEN=1 writes."""

    def check(name: str, text: str) -> None:
        path = DATA / name
        if os.environ.get("UPDATE_GOLDEN") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"{path} does not exist; write it with UPDATE_GOLDEN=1 and look at it"
        assert text == path.read_text(encoding="utf-8")

    return check
