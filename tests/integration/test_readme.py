"""What the README tells people to type works as it stands there."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from integration.command import QUICK_MODEL, only_run, run_command, run_train

CHECKOUT = Path(__file__).resolve().parents[2]
README = (CHECKOUT / "README.md").read_text()
#: Without the words after a `#`, which explain.
COMMANDS = [
    line.partition("#")[0].strip()
    for block in re.findall(r"```(?:bash)?\n(.*?)```", README, flags=re.DOTALL)
    for line in block.splitlines()
    if line.strip()
]
QUICK = ("experiment=smoke", "algorithm.dynamic_sampling.max_rounds=2", "tracker=none", "launch=inline", *QUICK_MODEL)


def test_the_two_commands_are_the_first() -> None:
    assert COMMANDS[:3] == ["make run", "make test", "python -m grpo_exp.train algorithm=dapo reward=math"]


def test_make_run_trains_and_the_second_time_shows(tmp_path: Path) -> None:
    """`make run` itself, on a policy that is primed in seconds."""
    words = " ".join([f"output_dir={tmp_path}/outputs", *QUICK])
    first = run_command("make", "run", f"ARGS={words}", cwd=CHECKOUT)
    assert first.code == 0, first.output
    assert "is up to date" in first.output
    assert "sampled accuracy" in first.output
    second = run_command("make", "run", f"ARGS={words}", cwd=CHECKOUT)
    assert second.code == 0
    assert "done already" in second.output
    assert second.cpu_seconds < 5
    assert only_run(tmp_path / "outputs").name.endswith("-s0")


def test_make_test_runs_tests() -> None:
    done = run_command("make", "test", "ARGS=tests/unit/test_errors.py -n 0 -p no:cacheprovider", cwd=CHECKOUT)
    assert done.code == 0, done.output
    assert " passed" in done.output


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith(("python -m grpo_exp", "grpo-exp"))])
def test_commands_are_understood(command: str, tmp_path: Path) -> None:
    """Each command as it stands, asked for its settings or its help instead of a run."""
    words = shlex.split(command)
    if words[0] == "grpo-exp":
        done = run_command(sys.executable, "-m", "grpo_exp", *words[1:], cwd=tmp_path)
    else:
        asked = [] if {"--cfg", "--help"} & set(words) else ["--cfg", "job"]
        done = run_train(*[w for w in words[3:] if w != "--multirun"], *asked, cwd=tmp_path)
    assert done.code == 0, done.output
    assert done.output


def test_every_group_and_option_of_the_table_exists() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", README, flags=re.MULTILINE)
    told = {group: set(re.findall(r"`(\w+)`", options)) for group, options in rows}
    found = {
        folder.name: {file.stem for file in folder.glob("*.yaml")}
        for folder in (CHECKOUT / "conf").iterdir()
        if folder.is_dir()
    }
    assert told == found


@pytest.mark.long
def test_several_runs(tmp_path: Path) -> None:
    """`--multirun seed=0,1` leaves two run folders in that of the sweep; with a wrong point nothing is started."""
    wrong = run_train("--multirun", "seed=-1,0", "trainer.max_steps=1", *QUICK, cwd=tmp_path)
    assert wrong.code == 2
    assert "seed=-1: must be at least 0; use 0 or more (1 of 2 points: seed=-1)" in wrong.output
    assert not list(tmp_path.iterdir())
    done = run_train("--multirun", "seed=0,1", "trainer.max_steps=1", *QUICK, cwd=tmp_path)
    assert done.code == 0, done.output
    assert {p.parent.name[-3:] for p in tmp_path.glob("outputs/sweeps/*/*/result.json")} == {"-s0", "-s1"}
