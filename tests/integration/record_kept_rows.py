"""Run a few steps with dynamic sampling and write down the rows that each process trained on.

Started by `accelerate launch` in `test_two_processes`: record_kept_rows.py OUT.json OVERRIDE...

A made-up reward that can be worked out again from a row: targets that end in 0 cannot be judged, other even ones never
pay, the others pay where the tokens of the completion add up to an odd number. The reason holds that sum and the text.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from record_groups import Silent

from grpo_exp.backends.trl import training
from grpo_exp.backends.trl.dynamic_sampling import DynamicSamplingTrainer
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.preflight import prepare
from grpo_exp.rewards.completion import read_completion
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score
from grpo_exp.settings import load

batches: list[dict[str, Any]] = []


def value_of(target: str, total: int) -> float | None:
    """Return what a completion is worth, given the sum of its tokens."""
    return None if target.endswith("0") else float(int(target) % 2 and total % 2)


def build_components(settings: Any) -> list[RewardComponent]:
    """Return the made-up reward under the names of the settings."""

    def score(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        # The held-out evaluation has texts only; its accuracy is not looked at.
        ids_of = columns.get("completion_ids", [[0]] * len(completions))
        rows = zip(columns["target"], ids_of, completions, strict=True)
        return [Score(value_of(target, sum(ids)), f"{sum(ids)}:{read_completion(c).text}") for target, ids, c in rows]

    return [RewardComponent(name, component.weight, score) for name, component in settings.components.items()]


class TableKeeper(Silent):
    """Keeps the tables of training."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []

    def on_completions(self, info: TableInfo, rows: list[CompletionRow]) -> None:  # type: ignore[override]
        """Keep it as JSON knows it."""
        if info.kind == "train":
            self.tables.append({"info": asdict(info), "rows": [asdict(row) for row in rows]})


class RecordingTrainer(DynamicSamplingTrainer):
    """Notes rows, rewards, advantages and tokens of each batch, process by process."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        mine = {
            "prompts": [prompt[-1]["content"] for prompt in prompts],
            "targets": [row["target"] for row in inputs],
            "texts": [completion[-1]["content"] for completion in completions],
            "ids": completion_ids_list,
        }
        # JSON has no NaN; what cannot be judged is never kept here, or the test fails.
        batches.append({"processes": gather_object([mine]), "rewards": rewards[:, 0].tolist()})
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch = super()._generate_and_score_completions(inputs)
        batches[-1]["advantages"] = gather_object(batch["advantages"].tolist())
        batches[-1]["num_items_in_batch"] = gather_object([batch["num_items_in_batch"].item()])
        batches[-1]["padded"] = gather_object([list(batch["completion_ids"].shape)])
        batches[-1]["positions"] = gather_object([self.sampling_state()["position"]])
        batches[-1]["metrics"] = {name: v[-1] for name, v in self._metrics["train"].items() if "dynamic" in name}
        return batch


def main() -> None:
    """Train on 2 processes, with groups of 6 completions."""
    out, *words = sys.argv[1:]
    overrides = [
        "algorithm=dapo", "reward=math_only", "algorithm.overlong.enabled=false",
        "algorithm.mask_truncated_completions=false", "launch=ddp",
        "algorithm.num_generations=6", "dataset.eval_size=4", "trainer.save_model=false",
        "trainer.eval_before=false", "trainer.completions.every_steps=1", "trainer.completions.max_rows=100000", *words,
    ]  # fmt: skip
    settings = load.to_settings(load.compose(overrides))
    prepared = prepare(settings)
    training.DynamicSamplingTrainer = RecordingTrainer
    training.build_components = build_components
    keeper = TableKeeper()
    training.run_training(
        settings, prepared.plan, prepared.data, keeper, model_dir=Path(out).parent / "model", use_cpu=True
    )
    if os.environ["RANK"] == "0":
        Path(out).write_text(json.dumps({"batches": batches, "tables": keeper.tables}))


if __name__ == "__main__":
    main()
