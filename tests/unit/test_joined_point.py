"""A point inside several processes: whatever becomes of it, the others are told once, and the code is written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grpo_exp import joined_point
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.point_run import Terms


class Others:
    """What the main process told the others; the network between them is all that is replaced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[Any] = []
        monkeypatch.setattr(joined_point, "broadcast_from_main", self._take)
        monkeypatch.delenv("RANK", raising=False)
        self._patch = monkeypatch

    def _take(self, message: Any) -> Any:
        self.told.append(message)
        return message

    def when_run(self, outcome: int | BaseException | None) -> None:
        """Let the point end before it starts with a code or an error; None starts it, and it returns 85."""

        def run_point(sweep: Any, index: int, terms: Terms, console: Any, *, start: Any) -> int:
            if isinstance(outcome, BaseException):
                raise outcome
            return start("request", console) if outcome is None else outcome

        def lead(request: Any, console: Any) -> int:
            self.told.append(("started", request))
            return 85

        self._patch.setattr(joined_point, "run_point", run_point)
        self._patch.setattr(joined_point, "lead", lead)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    return Others(monkeypatch)


def main(folder: Path) -> str:
    file = folder / "code"
    joined_point.main([str(folder), "0", f"--code-file={file}"])
    return file.read_text()


def test_run_that_starts_tells_by_itself_and_its_code_is_written(others: Others, tmp_path: Path) -> None:
    others.when_run(None)
    assert main(tmp_path) == "85\n"
    assert others.told == [("started", "request")]


def test_point_of_another_process_releases_the_others(others: Others, tmp_path: Path) -> None:
    others.when_run(4)
    assert main(tmp_path) == "4\n"
    assert others.told == [(4, None)]  # no folder: nothing to do


def test_wrong_settings_release_the_others_and_are_told(
    others: Others, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others.when_run(ConfigError(["first fault", "second fault"]))
    assert main(tmp_path) == "2\n"
    assert others.told == [(int(ExitCode.FAILED), None)]
    assert capsys.readouterr().err.splitlines() == ["first fault", "second fault"]


def test_accident_releases_the_others_and_leaves_no_code(others: Others, tmp_path: Path) -> None:
    others.when_run(OSError("disk"))
    with pytest.raises(OSError, match="disk"):
        main(tmp_path)
    assert others.told == [(int(ExitCode.FAILED), None)]
    assert not (tmp_path / "code").exists()


def test_other_process_follows(others: Others, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[bool] = []
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(joined_point, "follow", lambda: followed.append(True) or 0)
    joined_point.main([str(tmp_path), "0", f"--code-file={tmp_path / 'code'}"])
    assert followed == [True]
    assert not (tmp_path / "code").exists()  # the main process writes it
