"""A run that was stopped and gone on with is the run that would have been: same curves, same weights, bit for bit.

The curves of 8 steps hold the loss, gradient norm, rewards, lengths and KL of each. Several stops in one run are as
strict as one in each of several: what went wrong at any of them would stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from grpo_exp import worker
from grpo_exp.backends.trl import training
from unit.resume.small_run import REUSED, SYNCED, curves, result_of, run, weights

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the second that a picture takes, and start each test from one state of the random numbers."""
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    torch.manual_seed(0)


def is_the_same_run(folder: Path, words: Sequence[str], stops: Sequence[int]) -> dict[str, Any]:
    """Run once without a stop and once with stops, compare, and return the result of the second."""
    whole = run(folder / "whole", *words)
    for stop in stops:
        stopped = run(folder / "stopped", *words, stop_after=stop)
        assert result_of(stopped)["steps"] == stop
        assert (result_of(stopped)["status"], result_of(stopped)["exit_code"]) == ("stopped", 85)
        assert result_of(stopped)["resumable"] is True
        assert curves(stopped)[-1][0] == stop
    again = run(folder / "stopped", *words)
    assert again.attempt == len(stops) + 1
    assert curves(again) == curves(whole)
    assert weights(again) == weights(whole)
    assert result_of(again)["eval"] == result_of(whole)["eval"]
    return result_of(again)


def test_batches_that_are_used_again_and_groups_that_are_replaced(tmp_path: Path) -> None:
    """A batch serves 4 steps: 2 lies in the middle of the first, 5 in the second one, at the end of the first epoch."""
    result = is_the_same_run(tmp_path, REUSED, [2, 5])
    assert set(result["eval"]) == {"before", "after"}  # what was measured before the first stop has been kept


def test_reference_that_follows_and_a_weight_that_moves(tmp_path: Path) -> None:
    """The reference follows at 3 and 6: without its weights the KL of step 5 would be that to the first policy."""
    is_the_same_run(tmp_path, SYNCED, [4])


def test_curriculum_that_learns_while_it_draws(tmp_path: Path) -> None:
    """A batch serves 4 steps: the draws for step 5, and those of dynamic sampling, depend on the success before 2."""
    graded = ["+reward.components.quality={kind: text_quality}", "reward.primary=quality"]  # differs between prompts
    online = [*REUSED, *graded, "dataset.curriculum.order=online", "trainer.max_steps=6"]
    is_the_same_run(tmp_path, online, [2])


@pytest.mark.long
def test_stages_from_easy_to_hard(tmp_path: Path) -> None:
    """The second epoch begins behind step 5, and with it the first stage again."""
    is_the_same_run(tmp_path, [*SYNCED, "dataset.curriculum.order=easy_to_hard", "dataset.curriculum.stages=2"], [4])


def with_adapter(*args: Any, **kwargs: Any) -> Any:
    model, tokenizer = LOAD_POLICY(*args, **kwargs)
    torch.manual_seed(0)
    adapter = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    return get_peft_model(model, adapter), tokenizer


LOAD_POLICY = training.load_policy


@pytest.mark.parametrize("beta", [0.1, pytest.param(0.0, marks=pytest.mark.long)])
def test_adapter(beta: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the adapter is saved; with a KL, the reference is the policy as it began."""
    monkeypatch.setattr(training, "load_policy", with_adapter)
    is_the_same_run(tmp_path, ["algorithm=grpo", f"algorithm.beta={beta}", "trainer.max_steps=4"], [2])
    saved = {path.name for path in tmp_path.glob("stopped/*/*/checkpoints/checkpoint-2/*.safetensors")}
    assert saved == {"adapter_model.safetensors"}


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(REUSED, id="reused"),
        pytest.param(["algorithm=grpo", "algorithm.beta=0.1"], id="with a KL", marks=pytest.mark.long),
    ],
)
def test_adapter_of_the_settings(words: Sequence[str], tmp_path: Path) -> None:
    """Made by the trainer, from the seed; the saved model is the adapter, which names the model below it."""
    lora = ["model.lora.enabled=true", "model.lora.r=4", "trainer.max_steps=4"]
    is_the_same_run(tmp_path, [*words, *lora], [2])
    saved = {path.name for path in tmp_path.glob("stopped/*/*/model/*")}
    assert {"adapter_model.safetensors", "adapter_config.json"} <= saved
    assert "model.safetensors" not in saved


@pytest.mark.long
@pytest.mark.parametrize("stop", range(1, 9))
@pytest.mark.parametrize("words", [REUSED, SYNCED], ids=["reused", "synced"])
def test_stop_behind_any_step(words: Sequence[str], stop: int, tmp_path: Path) -> None:
    """At 8 the stop comes in the evaluation after the last step: what is left is that evaluation."""
    is_the_same_run(tmp_path, words, [stop])


@pytest.mark.long
@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=dr_grpo", "trainer.fast_step=false"],
        ["algorithm=cispo", "algorithm.num_iterations=3"],
        ["algorithm=grpo", "trainer.lr_scheduler_type=cosine", "trainer.warmup_steps=3"],
        ["algorithm=grpo", "launch.mixed_precision=bf16"],
        ["algorithm=grpo", "trainer.gradient_checkpointing=true"],
        ["algorithm=gspo", "algorithm.updates_per_batch=4", "trainer.fast_step=false"],
        [
            "algorithm=grpo", "+trainer.extra.use_adaptive_entropy=true", "+trainer.extra.entropy_coef=0.01",
            "+trainer.extra.entropy_target=5.0", "+trainer.extra.entropy_coef_delta=0.005",
        ],
    ],
    ids=lambda words: " ".join(words)[:60],
)  # fmt: skip
def test_other_settings_stopped_behind_each_third_step(words: Sequence[str], tmp_path: Path) -> None:
    is_the_same_run(tmp_path, words, [1, 4, 7])
