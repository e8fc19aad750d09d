"""A real trainer on a policy of a few thousand random weights, for the presets' equations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch


def save_policy(folder: Path) -> None:
    """Write a random policy of two layers: TRL loads the reference model for the KL from there."""
    from grpo_exp.models.tiny import build_model
    from grpo_exp.settings.model import TinyArchitecture

    shape = TinyArchitecture(
        num_hidden_layers=2,
        hidden_size=16,
        intermediate_size=32,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
    )
    build_model(shape, seed=3).save_pretrained(folder)


def load_policy(folder: Path) -> Any:
    """Return the random policy, in float32."""
    import torch
    from transformers import Qwen2ForCausalLM

    return Qwen2ForCausalLM.from_pretrained(folder, dtype=torch.float32)


def build_trainer(
    folder: Path, out: Path, *overrides: str, components: Sequence[RewardComponent] = (), launch: str = "inline"
) -> Any:
    """Return our trainer as composed settings make it.

    Args:
        folder: Holds the policy.
        out: The trainer's own folder.
        *overrides: Words as typed after the command.
        components: The reward; one that always gives 0 where nothing is given.
        launch: An option of `conf/launch`.
    """
    from grpo_exp.backends.trl.arguments import build_arguments
    from grpo_exp.backends.trl.reward_batch import RewardBatch
    from grpo_exp.backends.trl.trainer import StepClock, TimedGRPOTrainer
    from grpo_exp.backends.trl.training import to_dataset
    from grpo_exp.models.tokenizer import build_tokenizer

    settings = load.to_settings(load.compose(["tracker=none", f"launch={launch}", *overrides]))
    components = components or [fixed("correctness", [0.0])]
    # Weights are read from the settings, so the settings name the given components.
    reward = {component.name: {"kind": "math", "weight": component.weight} for component in components}
    data = settings.model_dump(mode="json")
    data["algorithm"]["overlong"]["enabled"] = False  # the components are the given ones
    settings = load.validate(data | {"reward": {"components": reward, "primary": components[0].name}})
    plan = solve_batch(settings)
    rows = [
        PromptRow(build_prompt(f"{number}+1?", None), str(number + 1))
        for number in range(max(8, plan.prompts_per_generation))
    ]
    trainer = TimedGRPOTrainer(
        primary=0,
        clock=StepClock(),
        model=load_policy(folder),
        args=build_arguments(settings, plan, output_dir=out, use_cpu=True),
        rewards=RewardBatch(components),
        train_dataset=to_dataset(rows),
        processing_class=build_tokenizer(),
    )
    trainer.model.train()
    # The training loop sets this at each step to the micro-steps of the accumulation window.
    trainer.current_gradient_accumulation_steps = plan.gradient_accumulation_steps
    return trainer


def fixed(name: str, values: Sequence[float | None], weight: float = 1.0) -> RewardComponent:
    """Return a component that gives these values, whatever the completions are."""

    def scorer(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        assert len(completions) == len(values)
        return [Score(value, "match" if value is not None else "no_target") for value in values]

    return RewardComponent(name, weight, scorer)
