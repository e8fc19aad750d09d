"""Whole runs of a policy of a few thousand weights, in this process: adopted, worked, stopped and gone on with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_exp import worker
from grpo_exp.adoption import Adopted, adopt
from grpo_exp.composition import RunRequest
from grpo_exp.observers import MainObserver
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load

#: 2 prompts x 4 completions a step in 2 micro-steps; 10 prompts, so that the second epoch begins behind step 5.
WORDS = (
    "tracker=none", "launch=inline", "trainer.max_steps=8", "trainer.prompts_per_step=2",
    "trainer.per_device_train_batch_size=4", "trainer.max_completion_length=12", "trainer.eval_samples=1",
    "trainer.learning_rate=1e-2", "algorithm.num_generations=4", "dataset.eval_size=2", "dataset.train_size=10",
    "model.architecture.num_hidden_layers=2", "model.architecture.hidden_size=16",
    "model.architecture.intermediate_size=32", "model.architecture.num_attention_heads=2",
    "model.architecture.num_key_value_heads=1", "model.priming.steps=2", "model.priming.batch_size=4",
    "launch.threads_per_process=1", "reward.engine.num_workers=1",
    # Most of the 12 tokens do not end by themselves: some groups vary in length, some do not.
    "+reward.components.length={kind: cosine_length, max_completion_tokens: 12}",
)  # fmt: skip
#: Each batch is used for four optimizer steps; groups that do not vary are replaced.
REUSED = (
    "algorithm=dapo", "algorithm.overlong.enabled=false", "algorithm.updates_per_batch=2",
    "algorithm.num_iterations=2", "algorithm.dynamic_sampling.metric=length", "algorithm.dynamic_sampling.max_rounds=3",
)  # fmt: skip
#: A reference model that follows every third step, and a weight that moves at each.
SYNCED = (
    "algorithm=grpo", "algorithm.beta=0.1", "algorithm.sync_ref_model=true", "algorithm.ref_model_sync_steps=3",
    "+reward.components.length.schedule={kind: linear, end_step: 8, end_factor: 0.2}",
)  # fmt: skip


def request(folder: Path, *words: str) -> RunRequest:
    words = (*WORDS, f"output_dir={folder}", *words)
    return RunRequest(load.to_settings(load.compose(words)), words, "seed: 0\n")


def start(folder: Path, *words: str, console: Console | None = None) -> Adopted:
    adopted = adopt(request(folder, *words), console or Console(quiet=True))
    assert isinstance(adopted, Adopted), adopted
    return adopted


class StopsItself(MainObserver):
    """Asks for a stop, as a person does, when a step has been measured."""

    after: int | None = None

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        super().on_metrics(step, metrics)
        if step == self.after:
            self._directory.stop_file.touch()


def run(folder: Path, *words: str, stop_after: int | None = None) -> RunDirectory:
    """Run until the end, or until a step."""
    adopted = start(folder, *words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "MainObserver", type("StopsItself", (StopsItself,), {"after": stop_after}))
        patch.delenv("RANK", raising=False)
        with adopted.owned():
            worker.run_worker(adopted.directory)
    return adopted.directory


def result_of(directory: RunDirectory) -> dict[str, Any]:
    result = directory.read_result()
    assert result is not None
    return result


def curves(directory: RunDirectory) -> list[tuple[int, dict[str, float], list[str]]]:
    """Return step, metrics and names of those that are not finite, of each record; times are no part of it."""
    records = [json.loads(line) for line in directory.metrics.read_text().splitlines()]
    return [
        (r["step"], {k: v for k, v in r["metrics"].items() if not k.startswith("time/")}, r.get("non_finite", []))
        for r in records
    ]


def weights(directory: RunDirectory) -> bytes:
    """Return the file of the trained weights, or of the adapter."""
    (path,) = directory.model.glob("*.safetensors")
    return path.read_bytes()
