"""Run two steps and write down the prompts of all completions in the order in which rewards are grouped.

Started by `accelerate launch` in `test_two_processes`: record_groups.py OUT.json OVERRIDE...
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object

from grpo_exp.backends.trl import training
from grpo_exp.preflight import prepare
from grpo_exp.settings import load

recorded: list[list[str]] = []


class RecordingTrainer(training.TimedGRPOTrainer):
    """Notes which prompt each reward belongs to."""

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        recorded.append([prompt[-1]["content"] for prompt in gather_object(prompts)])
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)


class Silent:
    """Ignores everything."""

    def on_phase(self, *args: object) -> None:
        """Ignore."""

    def on_metrics(self, *args: object) -> None:
        """Ignore."""

    def on_completions(self, *args: object) -> None:
        """Ignore."""

    def wants_stop(self) -> bool:
        """Never."""
        return False


def main() -> None:
    """Train for two steps of 3 prompts x 6 completions on 2 processes."""
    out, *words = sys.argv[1:]
    overrides = [
        *words, "launch=ddp", "trainer.prompts_per_step=3", "algorithm.num_generations=6", "trainer.max_steps=2",
        "dataset.eval_size=4", "trainer.save_model=false", "trainer.eval_before=false", "trainer.fast_step=false",
    ]  # fmt: skip
    settings = load.to_settings(load.compose(overrides))
    prepared = prepare(settings)
    training.TimedGRPOTrainer = RecordingTrainer
    training.run_training(
        settings, prepared.plan, prepared.data, Silent(), model_dir=Path(out).parent / "model", use_cpu=True
    )
    if os.environ["RANK"] == "0":
        Path(out).write_text(json.dumps(recorded))


if __name__ == "__main__":
    main()
