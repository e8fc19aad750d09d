"""Every recipe is run for two real steps: its settings, with ten rows of data and a model of two layers.

What a machine without a GPU cannot do is replaced by the words below, and by nothing else.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from architecture.checkout import CHECKOUT
from grpo_exp import worker
from grpo_exp.adoption import Adopted, adopt
from grpo_exp.composition import build_request
from grpo_exp.console import build_console
from grpo_exp.preflight.memory import find_gpu, plan_memory
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.tracking.metrics_log import read_metrics
from unit.random_models import save_model

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

CONF = CHECKOUT / "conf" / "experiment"
TABLES = CHECKOUT / "tests" / "cases" / "tables"
#: Without those that aim at no paper: they run as they are, vllm_cpu in tests/vllm_cpu.
RECIPES = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem not in {"smoke", "vllm_cpu"})
#: Recipe -> table to train on, and the held-out one where it is another.
DATA = {
    "gsm8k_qwen2_5_1_5b": ("gsm8k", "gsm8k_test"),
    "gsm8k_sft_qwen2_5_0_5b": ("gsm8k", "gsm8k_test"),
    "r1_zero_math_qwen2_5_7b": ("math", "math500"),
    "dapo_qwen2_5_7b": ("dapo_math_17k", None),
    "dr_grpo_qwen2_5_math_7b": ("math", "math500"),
    "tldr_qwen2_5_0_5b": ("tldr", "tldr_test"),
    "countdown_qwen2_5_3b": ("countdown", None),
    "cpu_smollm2": (None, None),
}
#: What is small here, and what a CPU without vLLM has.
SMALL = (
    "tracker=none", "vllm=off", "launch=inline", "launch.num_processes=1", "launch.mixed_precision=no",
    "launch.threads_per_process=1", "trainer.max_steps=2", "trainer.prompts_per_step=2",
    "trainer.max_completion_length=16", "trainer.eval_samples=1", "trainer.warmup_steps=1", "dataset.eval_size=2",
    "reward.engine.num_workers=1",
)  # fmt: skip
#: What only some recipes have.
FURTHER = {
    "gsm8k_sft_qwen2_5_0_5b": ("model.prime_from=null",),  # the chain itself: tests/unit/backends/test_sft.py
    "r1_zero_math_qwen2_5_7b": ("algorithm.updates_per_batch=2",),
    "dapo_qwen2_5_7b": ("algorithm.updates_per_batch=2", "algorithm.dynamic_sampling.max_rounds=2"),
    "dr_grpo_qwen2_5_math_7b": ("trainer.warmup_steps=0",),  # its rate is constant
    "countdown_qwen2_5_3b": ("dataset.max_prompt_length=512",),  # one token a byte here
    "cpu_smollm2": ("model=local",),  # its own model comes from a package
}


def words_of(recipe: str, folder: Path) -> list[str]:
    train, held_out = DATA[recipe]
    paths = [f"dataset.path={TABLES / train}.jsonl"] if train is not None else []
    paths += [f"dataset.eval_path={TABLES / held_out}.jsonl"] if held_out is not None else []
    return [
        f"experiment={recipe}", f"model.path={folder / 'model'}", f"output_dir={folder / 'out'}", *SMALL, *paths,
        *without_vllm(recipe), *FURTHER.get(recipe, ()),
    ]  # fmt: skip


def without_vllm(recipe: str) -> list[str]:
    """Return the words that take out what a recipe says about vLLM, as a user without it would type them."""
    said = yaml.safe_load((CONF / f"{recipe}.yaml").read_text()).get("vllm", {})
    return [f"~vllm.{name}" for name in said]


def test_every_recipe_is_here() -> None:
    assert list(DATA) == [name for name in DATA if name in RECIPES]
    assert sorted(DATA) == RECIPES


@pytest.mark.parametrize("recipe", [name for name in RECIPES if name != "cpu_smollm2"])
def test_recipe_fits_the_gpus_that_it_says_it_takes(recipe: str) -> None:
    """One that does not would be refused on the very hardware that its head names."""
    head = re.search(r"hardware +(\d+) GPUs? with (\d+) GB", (CONF / f"{recipe}.yaml").read_text())
    assert head is not None
    settings = load.to_settings(load.compose(["tracker=none", f"experiment={recipe}"]))
    assert settings.launch.num_processes == int(head[1])
    gpu = find_gpu(settings.launch.model_copy(update={"gpu": {"24": "RTX4090", "80": "A100-80GB"}[head[2]]}))
    plan = plan_memory(settings, solve_batch(settings), prompt_tokens=settings.dataset.max_prompt_length, gpu=gpu)
    assert plan is not None
    assert plan.fits


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe_says_what_it_takes_and_what_it_aims_at(recipe: str) -> None:
    lines = (CONF / f"{recipe}.yaml").read_text().splitlines()
    titles = [line[4:].split("  ")[0] for line in lines if line.startswith("#   ") and line[4] != " "]
    assert titles == ["hardware", "time", "aims at"]


@pytest.mark.parametrize(
    "recipe",
    [pytest.param(name, marks=[] if name == "tldr_qwen2_5_0_5b" else [pytest.mark.long]) for name in RECIPES],
)
def test_recipe_makes_two_real_steps(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast suite has the quickest one."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(worker, "_draw", lambda *_: None)  # a picture takes a second
    full = load.to_settings(load.compose([f"experiment={recipe}"]))
    architecture = full.model.architecture
    assert architecture is not None
    save_model(tmp_path / "model", architecture)  # type: ignore[arg-type]
    words = words_of(recipe, tmp_path)
    adopted = adopt(build_request(load.compose(words), words), build_console())
    assert isinstance(adopted, Adopted)
    with adopted.owned():
        worker.run_worker(adopted.directory)
    result = adopted.directory.read_result()
    assert result is not None
    assert (result["status"], result["steps"]) == ("completed", 2)
    records = [record for record in read_metrics(adopted.directory.metrics) if "train/loss" in record["metrics"]]
    assert [record["step"] for record in records] == [1, 2]
    assert all(math.isfinite(record["metrics"]["train/grad_norm"]) for record in records)
    rewarded = {name for name in records[0]["metrics"] if name.startswith("train/rewards/") and name.endswith("/mean")}
    assert {f"train/rewards/{name}/mean" for name in adopted.settings.reward.components} <= rewarded
    assert adopted.settings.algorithm.loss_type == full.algorithm.loss_type
    assert set(result["eval"]) == {"before", "after"}
