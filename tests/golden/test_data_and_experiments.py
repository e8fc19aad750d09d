"""Resolved settings of each data set, and GRPOConfig, data and reward of each recipe, as they will be used."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden.test_presets import FIELDS
from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

CONF = Path(__file__).parents[2] / "conf"
DATASETS = sorted(path.stem for path in (CONF / "dataset").glob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
#: What only a user knows.
NEEDED = {"jsonl": ["dataset.path=rows.jsonl"], "hub": ["dataset.path=organisation/name"]}


def test_data_sets(check_golden: Callable[[str, str], None]) -> None:
    found: dict[str, Any] = {}
    for name in DATASETS:
        settings = load.to_settings(load.compose([f"dataset={name}", *NEEDED.get(name, [])]))
        found[name] = settings.dataset.model_dump(mode="json")
    check_golden("datasets.json", json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def test_experiments(check_golden: Callable[[str, str], None]) -> None:
    found: dict[str, Any] = {}
    for name in EXPERIMENTS:
        settings = load.to_settings(load.compose([f"experiment={name}"]))
        plan = solve_batch(settings)
        arguments = build_arguments(settings, plan, output_dir=Path("run"), use_cpu=True).to_dict()
        dataset = settings.dataset
        found[name] = {
            "model": {key: settings.model.model_dump(mode="json").get(key) for key in ("kind", "path", "variant")},
            "dataset": {"name": dataset.name, "path": getattr(dataset, "path", None),
                        "max_prompt_length": dataset.max_prompt_length},
            "reward": {part: c.model_dump(mode="json") for part, c in settings.reward.components.items()},
            "launch": {"strategy": settings.launch.strategy, "num_processes": settings.launch.num_processes},
            "batch": plan.describe(),
            "arguments": {field: arguments[field] for field in FIELDS},
        }  # fmt: skip
    check_golden("experiments.json", json.dumps(found, indent=2) + "\n")
