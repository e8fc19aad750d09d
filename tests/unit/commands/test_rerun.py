"""`grpo-exp rerun`: the same settings, beside the old run, and what has changed around it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import provenance
from grpo_exp.commands import rerun
from grpo_exp.composition import RunRequest
from grpo_exp.errors import ConfigError
from grpo_exp.rundir import RunDirectory, begin_attempt, find_or_create, write_json
from unit.run_folder import settings_of


@pytest.fixture
def old(tmp_path: Path) -> RunDirectory:
    directory = find_or_create(tmp_path / "old", "abc-s0", resume=True)
    begin_attempt(directory)
    settings = settings_of(tmp_path, "trainer.learning_rate=3e-5", "seed=4", "resume=auto")
    write_json(directory.config_json, settings.model_dump(mode="json"))
    directory.overrides.write_text("trainer.learning_rate=3e-5\nseed=4\n")
    write_json(directory.provenance, provenance.collect(["x"]))
    return directory


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[RunRequest]:
    """Collect what would be run; running is tested elsewhere."""
    found: list[RunRequest] = []
    monkeypatch.setattr(rerun, "run", lambda request, console: found.append(request) or 0)
    return found


def test_settings_are_those_of_the_old_run_in_a_new_one_beside_it(
    old: RunDirectory, requests: list[RunRequest], capsys: pytest.CaptureFixture[str]
) -> None:
    assert rerun.main([str(old.path)]) == 0
    (request,) = requests
    then = {**old.read_config(), "resume": "never"}
    assert request.settings.model_dump(mode="json") == then
    assert request.overrides == ["trainer.learning_rate=3e-5", "seed=4"]
    assert request.command == ["grpo-exp", "rerun", str(old.path)]
    assert "note" not in capsys.readouterr().out  # nothing has changed since


def test_output_folder_can_be_another(old: RunDirectory, requests: list[RunRequest], tmp_path: Path) -> None:
    rerun.main([str(old.path), f"output_dir={tmp_path / 'new'}"])
    assert requests[0].settings.output_dir == str(tmp_path / "new")


def test_what_has_changed_around_it_is_told() -> None:
    then = {**provenance.collect([]), "reward_source": "a"}
    assert provenance.differences(then, then) == []
    other: dict[str, Any] = {**then, "packages": {**then["packages"], "trl": "0.1"}}
    assert provenance.differences(other, then) == [f"trl was 0.1, and is {then['packages']['trl']} now"]
    told = provenance.differences({**then, "git": {"commit": "abc"}}, then)
    assert told[0].startswith("the run was made at commit abc; this is ")
    told = provenance.differences({**then, "reward_source": "b"}, then)
    assert told == ["the source of the reward is not the one that the run had"]


@pytest.mark.parametrize(
    "words", [[], ["a", "b"], ["a", "seed=1"], ["a", "--x"], ["a", "output_dir=b", "output_dir=c"]]
)
def test_nothing_else_is_changed(words: list[str]) -> None:
    with pytest.raises(ConfigError, match="Usage: grpo-exp rerun"):
        rerun.main(words)


def test_run_over_several_machines_is_refused_with_the_command_for_each(
    old: RunDirectory, requests: list[RunRequest], tmp_path: Path
) -> None:
    """One machine's processes would wait for the others; `hydra/launcher=slurm` is no word of rerun."""
    words = ["launch=multinode", "launch.num_processes=4", "launch.main_process_port=29500", "seed=4", "resume=auto",
             "dataset.system_prompt=think first"]  # fmt: skip
    settings = settings_of(tmp_path, *(word for word in words if word != "dataset.system_prompt=think first"))
    write_json(old.config_json, settings.model_dump(mode="json"))
    old.overrides.write_text("".join(f"{word}\n" for word in words))
    with pytest.raises(ConfigError) as caught:
        rerun.main([str(old.path)])
    (fault,) = caught.value.faults
    assert fault.startswith(f"launch.num_nodes=2: {old.path} was trained on 2 machines, and rerun starts the processes")
    assert (
        "start `python -m grpo_exp.train launch=multinode launch.num_processes=4 launch.main_process_port=29500 seed=4 "
        f"'dataset.system_prompt=think first' launch.num_nodes=2 output_dir={tmp_path} resume=never` on each of them"
    ) in fault
    assert not requests


def test_settings_of_another_version_are_told_with_the_version(old: RunDirectory) -> None:
    write_json(old.config_json, {**old.read_config(), "of_the_future": 1})
    write_json(old.provenance, {"packages": {"grpo-exp": "9.9"}})
    with pytest.raises(ConfigError) as raised:
        rerun.main([str(old.path)])
    first, *rest = raised.value.faults
    assert "was written by version 9.9" in first
    assert any("of_the_future" in fault for fault in rest)
    assert json.loads(old.config_json.read_text())["of_the_future"] == 1
