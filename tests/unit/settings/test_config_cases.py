"""Inputs that broke other tools (tests/cases/config.jsonl), applied to our keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.settings.absolute_paths import absolute_paths
from grpo_exp.settings.run import RunSettings

Typed = Callable[..., RunSettings]

FILE = Path(__file__).parents[2] / "cases" / "config.jsonl"
CASES = {case["id"]: case for line in FILE.read_text().splitlines() if (case := json.loads(line))}

#: Case -> (our words, path of the setting, value). The case's `expected`, put on a key of ours of the same type.
ACCEPTED: dict[str, tuple[str, str, Any]] = {
    "g002": ("trainer.learning_rate='1e-6'", "trainer.learning_rate", 1e-6),
    "g004": ("trainer.max_steps='7'", "trainer.max_steps", 7),
    "g005": ("dataset.system_prompt=None", "dataset.system_prompt", None),
    "g006": ("dataset.system_prompt=null", "dataset.system_prompt", None),
    "g010": ("trainer.gradient_checkpointing=no", "trainer.gradient_checkpointing", False),
    "g017": ("seed=1", "seed", 1),
    "g029": (r"dataset.system_prompt='\boxed{}'", "dataset.system_prompt", r"\boxed{}"),
}
#: Case -> (our words, what the one message says).
REFUSED: dict[str, tuple[str, str]] = {
    "g014": ("+trainer.max_step=5", r"trainer\.max_step: there is no such setting; did you mean trainer\.max_steps"),
    "g015": ("+trainer.max_steps=5", r"trainer\.max_steps exists already; drop the '\+': trainer\.max_steps=5"),
    "g022": ("reward=math,math_only", r"^reward=math,math_only: .*--multirun"),
    "g028": (r"dataset.system_prompt=\boxed{}", r"\"dataset\.system_prompt='\\boxed\{\}'\""),
    "g030": ("dataset.system_prompt=x=1", r"\"dataset\.system_prompt='x=1'\""),
    "g032": ("dataset.system_prompt=1e3", r"dataset\.system_prompt=1000\.0: .*quote it"),
}
#: Case -> (YAML, our key, value), read as a configuration file is.
FROM_YAML: dict[str, tuple[str, str, Any]] = {
    "g003": ("trainer: {learning_rate: 1e-6}", "trainer.learning_rate", 1e-6),
    "g037": ("name: 02-30", "name", "02-30"),
}
FROM_YAML_REFUSED: dict[str, tuple[str, str]] = {
    "g035": ("dataset: {system_prompt: 12:00:00}", r"dataset\.system_prompt=43200: .*quote it"),
    "g038": ("tracker: {mlflow: {experiment: 3.10}}", r"tracker\.mlflow\.experiment=3\.1: .*quote it"),
}
#: Cases with a test of their own below.
OWN_TEST = {"g025", "g041", "g045"}
#: Cases without a counterpart, and why.
NO_COUNTERPART = {
    "g043": "no setting names a Python object: there is no _target_ in conf/, so nothing is instantiated by name",
}


def test_every_case_is_accounted_for() -> None:
    tables: list[Any] = [ACCEPTED, REFUSED, FROM_YAML, FROM_YAML_REFUSED, OWN_TEST, NO_COUNTERPART]
    assert sorted(case for table in tables for case in table) == sorted(CASES)


def test_no_configuration_file_instantiates_by_name() -> None:
    """What makes g043 not apply."""
    conf = Path(__file__).parents[3] / "conf"
    assert not [path.name for path in conf.rglob("*.yaml") if "_target_" in path.read_text()]


def value_at(settings: RunSettings, path: str) -> Any:
    found: Any = settings
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize("case_id", ACCEPTED)
def test_accepted(case_id: str, typed: Typed) -> None:
    words, path, value = ACCEPTED[case_id]
    found = value_at(typed(words), path)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("case_id", REFUSED)
def test_refused_with_the_fix(case_id: str, typed: Typed) -> None:
    words, message = REFUSED[case_id]
    with pytest.raises(ConfigError, match=message) as caught:
        typed(words)
    assert len(caught.value.faults) == 1


def read_yaml(text: str) -> RunSettings:
    config = load.compose(["tracker=mlflow"])
    OmegaConf.set_struct(config, False)
    return load.to_settings(OmegaConf.merge(config, OmegaConf.create(text)))


@pytest.mark.parametrize("case_id", FROM_YAML)
def test_accepted_from_yaml(case_id: str) -> None:
    text, path, value = FROM_YAML[case_id]
    assert value_at(read_yaml(text), path) == value


@pytest.mark.parametrize("case_id", FROM_YAML_REFUSED)
def test_refused_from_yaml(case_id: str) -> None:
    text, message = FROM_YAML_REFUSED[case_id]
    with pytest.raises(ConfigError, match=message):
        read_yaml(text)


def test_g041_every_interpolation_that_leads_nowhere_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml("{seed: '${nope.y}', trainer: {max_steps: '${nope.z}'}}")
    seed, steps = sorted(caught.value.faults)
    assert seed.startswith("seed=${nope.y}: ")
    assert "nope.y" in seed.partition(": ")[2]
    assert steps.startswith("trainer.max_steps=${nope.z}: ")
    assert "\n" not in seed + steps


def test_g045_paths_are_taken_from_the_folder_the_command_was_started_in(typed: Typed, tmp_path: Path) -> None:
    settings = typed("dataset=jsonl", "dataset.path=data/train.jsonl", "output_dir=out")
    absolute = absolute_paths(settings, tmp_path)
    assert absolute.dataset.kind == "jsonl"
    assert absolute.dataset.path == str(tmp_path / "data" / "train.jsonl")
    assert absolute.output_dir == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("value", "expected"), [("a,b", ["a", "b"]), ("'a,b'", ["'a,b'"])], ids=["shell strips the quotes", "quoted twice"]
)
def test_g025_size_of_a_sweep(value: str, expected: list[str]) -> None:
    """The shell strips one pair of quotes: a,b are two runs; a pair inside the pair makes one text of it."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    overrides = OverridesParser.create().parse_overrides([f"dataset.system_prompt={value}"])
    (batch,) = BasicSweeper.split_arguments(overrides, max_batch_size=None)
    assert [words[0].partition("=")[2] for words in batch] == expected


# ------------------------------------------------------------------ faults of the issue, from the command's own door


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algorithm=dpao"], "algorithm=dpao: there is no such option; did you mean algorithm=dapo?"),
        (["trainer.max_step=5"], "trainer.max_step: there is no such setting; did you mean trainer.max_steps"),
        (["+foo=1"], "foo: there is no such setting"),
        (["foo=1"], "foo: there is no such setting"),
        (["algoritm=dapo"], "algoritm: there is no such setting; did you mean algorithm"),
        (["algorithm.num_generations=1"], "algorithm.num_generations=1: must be at least 2"),
        (["algorithm.epsilon_high=0.1"], "algorithm.epsilon_high: 0.1 is below epsilon (0.2)"),
        (["trainer.learning_rate=fast"], "trainer.learning_rate=fast: a number is wanted"),
        (["algorithm.temperature=-1"], "algorithm.temperature=-1: must be above 0"),
        (["trainer.max_steps"], "trainer.max_steps: is not of the form key=value"),
        (["~trainer.max_step"], "trainer.max_step: there is no such setting; did you mean trainer.max_steps"),
        (["seed=${nope}"], "nope"),
        (["model=local"], "model.path: model=local needs the folder"),
        (["dataset=jsonl"], "dataset.path: dataset=jsonl needs a file"),
    ],
)
def test_fault_is_one_sentence_with_its_fix(words: list[str], message: str, typed: Typed) -> None:
    with pytest.raises(ConfigError) as caught:
        typed(*words)
    assert len(caught.value.faults) == 1
    assert message in caught.value.faults[0]
    assert "\n" not in caught.value.faults[0]


def test_field_for_trl_that_lacks_the_plus_is_told_so(typed: Typed) -> None:
    """`trainer.extra` is empty, so Hydra wants a plus in front of a field that passes through it."""
    assert typed("+trainer.extra.log_completions=true").trainer.extra == {"log_completions": True}
    with pytest.raises(ConfigError, match=r"\+trainer\.extra\.log_completions=true"):
        typed("trainer.extra.log_completions=true")


def test_empty_value_of_a_number_is_refused_and_of_an_optional_one_is_null(typed: Typed) -> None:
    assert typed("algorithm.epsilon_high=").algorithm.epsilon_high is None
    with pytest.raises(ConfigError, match=r"^trainer\.max_steps=.*a whole number is wanted"):
        typed("trainer.max_steps=")


def test_composing_and_checking_loads_neither_torch_nor_trl(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from grpo_exp.settings import load\n"
        "from grpo_exp.preflight import prepare\n"
        "prepare(load.to_settings(load.compose(['algorithm=dapo'])))\n"
        "print(sorted({'torch', 'trl', 'transformers', 'mlflow', 'wandb', 'datasets'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, env=dict(os.environ)
    )
    assert done.stdout == "[]\n"
