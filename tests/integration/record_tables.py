"""Run eight steps without dynamic sampling and write down the tables of completions.

Started by `accelerate launch` in `test_two_processes`: record_tables.py OUT.json OVERRIDE...
"""

import json
import os
import sys
from pathlib import Path

from record_kept_rows import TableKeeper, build_components

from grpo_exp.backends.trl import training
from grpo_exp.preflight import prepare
from grpo_exp.settings import load


def main() -> None:
    """Train on 2 processes, 3 prompts x 6 completions a step, with the made-up reward."""
    out, *words = sys.argv[1:]
    overrides = [
        "algorithm=dr_grpo", "algorithm.scale_rewards=group", "reward=math_only", "launch=ddp",
        "algorithm.num_generations=6", "trainer.prompts_per_step=3", "trainer.max_steps=8", "dataset.eval_size=4",
        "trainer.save_model=false", "trainer.eval_before=false", "trainer.completions.every_steps=1",
        "trainer.completions.max_rows=100000", *words,
    ]  # fmt: skip
    settings = load.to_settings(load.compose(overrides))
    prepared = prepare(settings)
    keeper = TableKeeper()
    training.build_components = build_components
    training.run_training(
        settings, prepared.plan, prepared.data, keeper, model_dir=Path(out).parent / "model", use_cpu=True
    )
    if os.environ["RANK"] == "0":
        Path(out).write_text(json.dumps(keeper.tables))


if __name__ == "__main__":
    main()
