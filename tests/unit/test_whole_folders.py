"""A folder of the cache is there whole or not at all, whoever builds it at the same time."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from grpo_exp.whole_folders import build_folder


def test_folder_appears_when_all_is_written_and_others_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "model"
    with build_folder(folder) as partial:
        (partial / "weights").write_text("1")
        (partial / "weights").chmod(0o600)
        assert not folder.exists()
    assert (folder / "weights").read_text() == "1"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "weights").stat().st_mode) == 0o644
    assert list(folder.parent.iterdir()) == [folder]


def test_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no folder"), build_folder(tmp_path / "model") as partial:
        (partial / "no folder" / "weights").write_text("1")
    assert list(tmp_path.iterdir()) == []


def test_of_two_builders_the_first_wins(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with build_folder(folder) as slow:
        with build_folder(folder) as quick:
            (quick / "weights").write_text("quick")
        (slow / "weights").write_text("slow")
    assert (folder / "weights").read_text() == "quick"
    assert list(tmp_path.iterdir()) == [folder]
