"""The fingerprint of the reward's code changes with the code, and only with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp.rewards import source_hash
from grpo_exp.settings.reward import RewardSettings


def settings_with(function: str | None = None) -> RewardSettings:
    own = {} if function is None else {"own": {"kind": "python", "function": function}}
    return RewardSettings.model_validate(
        {"primary": "correctness", "components": {"correctness": {"kind": "math"}, **own}}
    )


def test_file_of_a_users_function_counts_without_being_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "hash_me_reward.py"
    found = []
    for body in ("return [0.0]", "return [1.0]", "return [0.0]"):
        module.write_text(f"raise SystemExit('imported')\ndef f(completions, **_): {body}\n")
        found.append(source_hash.source_hash(settings_with("hash_me_reward:f")))
    assert found[0] == found[2] != found[1]
    assert source_hash.source_hash(settings_with()) not in found


def test_every_file_of_the_scorers_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content, name and place: a file that is moved is other code."""
    monkeypatch.setattr(source_hash.rewards, "__path__", [str(tmp_path)])
    found = []

    def note() -> None:
        found.append(source_hash.source_hash(settings_with()))

    note()
    (tmp_path / "a.py").write_text("x = 1\n")
    note()
    (tmp_path / "a.py").write_text("x = 2\n")
    note()
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    note()
    (tmp_path / "code").mkdir()
    (tmp_path / "b.py").rename(tmp_path / "code" / "b.py")
    note()
    assert len(set(found)) == len(found) == 5
    assert all(len(digest) == source_hash.NUM_DIGITS for digest in found)
