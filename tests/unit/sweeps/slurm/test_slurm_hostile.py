"""Whatever stands in a setting, the scripts are valid, pass shellcheck, and do not execute it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grpo_exp.sweeps.slurm.directives import Chunk
from grpo_exp.sweeps.slurm.rendering import render_script
from grpo_exp.sweeps.slurm.settings import SlurmSettings

#: Text in which a shell would see a command, a quote, a pattern or a variable.
HOSTILE = ["a b", "it's", 'say "hi"', "$(touch pwned)", "`touch pwned`", "x; touch pwned", "x' && touch pwned '",
           "ünï語", "#no comment", "* ? [a]", "back\\slash", "${HOME} $$ !!"]  # fmt: skip
SEVERAL_LINES = ["a\ntouch pwned", "a\rtouch pwned", "a\u2028b", "a\x1b[2J", "a\0b"]
#: Setting -> how it holds a text. `setup` is missing: it is code, and its docstring says so.
PLACES: dict[str, Any] = {
    **{name: (lambda text: text) for name in
       ("partition", "account", "qos", "constraint", "gpu_type", "job_name", "python", "vllm")},
    **{name: (lambda text: [text]) for name in ("modules", "container", "vllm_options")},
    "sbatch_options": lambda text: [f"--comment={text}"],
    "environment": lambda text: {"TOLD": text},
}  # fmt: skip
#: Writes down its words, and answers so that the script goes on to its end.
STUB = """#!/usr/bin/env bash
printf '%s\\0' "$(basename "$0")" "$@" >>"$RECORD"
printf '\\n' >>"$RECORD"
case "$(basename "$0") $*" in
*"show hostnames"*) echo n1; echo n2 ;;
*"show node"*) echo "NodeName=n1 NodeAddr=n1 x" ;;
*"run-directory"*) echo "$PWD/run" ;;
*"ports"*) echo "2001 2002" ;;
esac
"""


def test_every_text_setting_is_looked_at() -> None:
    """Guards against a new setting that nobody tries: numbers, choices and `setup` apart, all are in PLACES."""
    checked = {"time", "memory", "setup"}  # the first two have a pattern of their own
    texts = {name for name, field in SlurmSettings.model_fields.items() if "str" in str(field.annotation)}
    assert texts - checked == PLACES.keys()


@pytest.mark.parametrize("text", SEVERAL_LINES)
@pytest.mark.parametrize("name", [*PLACES, "setup"])
def test_several_lines_are_refused_everywhere(name: str, text: str) -> None:
    place = PLACES.get(name, lambda text: [text])
    with pytest.raises(ValidationError):
        SlurmSettings.model_validate({name: place(text), "gpus_per_node": 1})


def test_words_that_look_like_options_are_refused_as_names() -> None:
    for name in ("partition", "account", "qos", "constraint", "gpu_type", "job_name", "python", "vllm"):
        with pytest.raises(ValidationError, match="begins with '-'"):
            SlurmSettings.model_validate({name: "--wrap=x", "gpus_per_node": 1})


def render(text: str, folder: Path, **shape: int) -> str:
    values = {name: place(text) for name, place in PLACES.items()}
    settings = SlurmSettings.model_validate({**values, "gpus_per_node": 1, **shape})
    return render_script(settings, folder, Chunk(0, (0,)))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_makes_a_script_that_bash_and_shellcheck_accept(text: str, tmp_path: Path) -> None:
    assert shutil.which("shellcheck"), "shellcheck is missing; on Debian: apt-get install shellcheck"
    script = tmp_path / "a.sh"
    script.write_text(render(text, tmp_path / "s", nodes=2, server_nodes=1))  # holds the parts of all three
    assert subprocess.run(["bash", "-n", script], capture_output=True, check=False).returncode == 0
    # SC2016: `$` in single quotes stays as it is. Here that is what is wanted.
    done = subprocess.run(["shellcheck", "-e", "SC2016", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_handed_on_and_not_executed(text: str, tmp_path: Path) -> None:
    bin_folder, work, record = tmp_path / "bin", tmp_path / "work", tmp_path / "record"
    for folder in (bin_folder, work):
        folder.mkdir()
    for name in ("module", "scontrol", "srun", "squeue", "container"):
        (bin_folder / name).write_text(STUB)
        (bin_folder / name).chmod(0o755)
    settings = SlurmSettings.model_validate(
        {**{name: place(text) for name, place in PLACES.items()}, "container": ["container", text], "gpus_per_node": 1}
    )
    (tmp_path / "a.sh").write_text(render_script(settings, tmp_path / "the 's' $(touch pwned)", Chunk(0, (0,))))
    environment = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}", "RECORD": str(record), "SLURM_ARRAY_JOB_ID": "1",
        "SLURM_ARRAY_TASK_ID": "0", "SLURM_JOB_NODELIST": "n1", "HOME": "/nowhere",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", tmp_path / "a.sh"], cwd=work, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(work.iterdir()) == []  # no `pwned`
    calls = [line.split("\0")[:-1] for line in record.read_text().splitlines()]
    sweep = str(tmp_path / "the 's' $(touch pwned)")
    assert ["module", "load", text] in calls
    assert ["container", text, text, "-m", "grpo_exp", "sweep", "run-point", sweep, "0"] in calls
