"""What changes the id of a run, and what is written down about where it came from."""

from __future__ import annotations

import copy
import importlib.metadata
import subprocess
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import provenance
from grpo_exp.provenance import changed_settings, settings_hash
from grpo_exp.settings import load
from grpo_exp.settings.lora import LoraSettings


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    settings = load.to_settings(load.compose(["algorithm=dapo", "vllm=server"]))
    return settings.model_dump(mode="json")


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(config)
    node = copied
    *groups, key = path.split(".")
    for group in groups:
        node = node[group]
    assert key in node
    assert node[key] != value
    node[key] = value
    return copied


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("algorithm.beta", 0.001),
        ("algorithm.num_generations", 4),
        ("algorithm.dynamic_sampling.enabled", False),
        ("trainer.learning_rate", 2e-4),
        ("trainer.max_completion_length", 33),
        ("trainer.extra", {"sync_ref_model": True}),
        ("model.priming.seed", 1),
        ("model.architecture.hidden_size", 128),
        ("dataset.max_operand", 30),
        ("dataset.eval_size", 100),
        ("reward.components.format.weight", 0.2),
        ("reward.primary", "format"),
        ("vllm.importance_sampling_mode", "token_mask"),
        ("launch.num_processes", 2),
        ("launch.mixed_precision", "bf16"),
    ],
)
def test_setting_that_changes_what_is_computed_changes_the_hash(path: str, value: Any, config: dict[str, Any]) -> None:
    assert settings_hash(changed(config, path, value)) != settings_hash(config)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name", "other"),
        ("seed", 1),  # stands in the id itself: <hash8>-s<seed>
        ("output_dir", "/elsewhere"),
        ("resume", "never"),
        ("tracker", {"kind": "none"}),
        ("health.rules.truncation.window", 20),
        ("health.rules.not_finite.action", "alert"),
        ("trainer.completions", {"every_steps": None}),
        ("launch.kind", "inline"),
        ("launch.main_process_port", 29500),
        # A requeued job gets another node and other ports; it must find its run.
        ("vllm.server_host", "node17"),
        ("vllm.server_port", 8001),
        ("vllm.group_port", 51217),
        ("vllm.server_timeout_seconds", 600.0),
        ("vllm.gpu_memory_utilization", 0.8),
        # Without adapters there is nothing that these are about.
        ("model.lora.r", 8),
        ("model.lora.target_modules", ["q_proj"]),
        ("model.lora.quantization", "nf4"),
        # When it is saved and when it stops is nothing that a step knows of.
        ("trainer.checkpoint", {"enabled": False}),
        ("trainer.max_wall_minutes", 60.0),
        ("trainer.slurm_margin_minutes", 1.0),
        ("trainer.max_steps", 100),  # the learning rate is constant: a longer run is this one, gone on with
    ],
)
def test_setting_that_may_change_on_resume_does_not(path: str, value: Any, config: dict[str, Any]) -> None:
    assert settings_hash(changed(config, path, value)) == settings_hash(config)


@pytest.mark.parametrize(
    ("path", "value"), [("model.lora.r", 8), ("model.lora.lora_dropout", 0.1), ("model.lora.enabled", False)]
)
def test_adapter_that_is_trained_counts(path: str, value: Any) -> None:
    config = load.to_settings(load.compose(["model/lora=on"])).model_dump(mode="json")
    assert settings_hash(changed(config, path, value)) != settings_hash(config)


def test_fields_without_effect_count_as_their_defaults() -> None:
    """So that runs of before keep their ids: what is hashed of a default run is what stands in its settings."""
    for words in (["vllm=colocate"], ["vllm=server", "model=local", "model.path=/m"], []):
        config = load.to_settings(load.compose(words)).model_dump(mode="json")
        deciding = provenance.deciding_settings(config)
        assert deciding["model"] == config["model"]
        assert deciding["model"]["lora"] == LoraSettings().model_dump(mode="json")
        assert deciding["vllm"].items() <= config["vllm"].items()


@pytest.mark.parametrize(
    ("schedule", "is_same"), [("constant", True), ("constant_with_warmup", True), ("linear", False), ("cosine", False)]
)
def test_longer_run_is_another_one_where_the_learning_rate_depends_on_its_length(
    schedule: str, is_same: bool, config: dict[str, Any]
) -> None:
    of_schedule = {**config, "trainer": {**config["trainer"], "lr_scheduler_type": schedule}}
    longer = changed(of_schedule, "trainer.max_steps", 100)
    assert (settings_hash(longer) == settings_hash(of_schedule)) is is_same


def test_hash_is_eight_hex_digits_and_does_not_depend_on_the_order_of_keys(config: dict[str, Any]) -> None:
    digest = settings_hash(config)
    assert len(digest) == 8
    assert int(digest, 16) >= 0
    assert settings_hash(dict(reversed(config.items()))) == digest


def test_spelling_on_the_command_line_does_not_matter() -> None:
    """1e-4, 0.0001 and '1e-4' are one rate; so are 2 and 2.0."""
    hashes = {
        settings_hash(load.to_settings(load.compose(words)).model_dump(mode="json"))
        for words in (
            ["trainer.learning_rate=1e-4", "algorithm.temperature=1"],
            ["trainer.learning_rate=0.0001", "algorithm.temperature=1.0"],
            ["trainer.learning_rate='1e-4'"],
            [],
        )
    }
    assert len(hashes) == 1


def test_changed_settings_are_named_by_path_with_both_values(config: dict[str, Any]) -> None:
    other = changed(changed(config, "health.enabled", False), "launch.main_process_port", 29500)
    assert changed_settings(config, other) == {
        "health.enabled": (True, False),
        "launch.main_process_port": (None, 29500),
    }
    assert changed_settings(config, copy.deepcopy(config)) == {}


def test_setting_that_comes_or_goes_counts_as_none() -> None:
    """Another kind of tracker has other keys."""
    old = {"tracker": {"kind": "wandb", "project": "p"}, "seed": 0}
    new = {"tracker": {"kind": "mlflow", "experiment": "e"}, "seed": 0}
    assert changed_settings(old, new) == {
        "tracker.kind": ("wandb", "mlflow"),
        "tracker.project": ("p", None),
        "tracker.experiment": (None, "e"),
    }


def test_what_is_collected() -> None:
    found = provenance.collect(["python", "-m", "grpo_exp.train", "name=a b"])
    assert found["command"] == "python -m grpo_exp.train 'name=a b'"
    assert found["packages"]["pydantic"] == importlib.metadata.version("pydantic")
    assert found["packages"]["grpo-exp"] == importlib.metadata.version("grpo-exp")
    assert found["cpus"] >= 1


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@example.org", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_commit_and_uncommitted_change_of_a_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init")
    (tmp_path / "code.py").write_text("x = 1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "code.py").write_text("x = 2\n")
    found = provenance._git(tmp_path)
    assert found is not None
    assert found["commit"] == git(tmp_path, "rev-parse", "HEAD").strip()
    assert "-x = 1\n+x = 2\n" in found["diff"]


def test_folder_without_git_has_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance._git(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
    assert provenance._git(tmp_path) is None
