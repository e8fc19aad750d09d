"""Real vLLM on a CPU inside the training process: the command trains, and engine and trainer are the same policy.

Run by `make test-vllm`, in an environment of its own (docs/vllm.md).
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.command import only_run, read_lines, run_command

pytestmark = pytest.mark.vllm

STEPS = 3
WORDS = (
    "experiment=vllm_cpu", "model.priming.steps=30", "model.priming.batch_size=32", f"trainer.max_steps={STEPS}",
    "trainer.prompts_per_step=8", "dataset.train_size=64", "dataset.eval_size=8", "trainer.eval_before=false",
    "launch=inline",
)  # fmt: skip
LOGPS = "train/sampling/sampling_logp_difference/mean"
RATIO = "train/sampling/importance_sampling_ratio/mean"


@dataclass(frozen=True)
class Watched:
    """What a run with an engine in it left behind."""

    metrics: list[dict[str, float]]
    engine: dict[str, Any]
    rollouts: list[list[int]]
    syncs: list[dict[str, Any]]


Train = Callable[..., Watched]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Return `train(*words)`, which runs the command once for the same words."""
    done: dict[tuple[str, ...], Watched] = {}

    def build(*words: str) -> Watched:
        if words not in done:
            done[words] = _run(tmp_path_factory.mktemp("run"), words)
        return done[words]

    return build


def _run(folder: Path, words: tuple[str, ...]) -> Watched:
    record = folder / "record.jsonl"
    script = Path(__file__).with_name("watched_train.py")
    done = run_command(sys.executable, str(script), str(record), *WORDS, *words, cwd=folder, timeout=600)
    run = only_run(folder / "outputs") if (folder / "outputs").exists() else folder
    logs = [path.read_text()[-3000:] for path in run.glob("logs/attempt-1/worker.log")]
    assert done.code == 0, "\n".join([done.output, *logs])
    steps = [r["metrics"] for r in read_lines(run / "metrics.jsonl") if "train/loss" in r["metrics"]]
    first, *rest = read_lines(record)
    return Watched(steps, first["engine"], first["rollouts"], [line["sync"] for line in rest])


@pytest.mark.parametrize(
    "words", [(), ("seed=1",), ("launch.mixed_precision=bf16",)], ids=["float32", "seed 1", "bfloat16"]
)
def test_engine_and_trainer_give_tokens_the_same_probability(words: tuple[str, ...], train: Train) -> None:
    """Measured where the importance correction is: after temperature, over the sampled tokens."""
    steps = train(*words).metrics
    assert len(steps) == STEPS
    for step in steps:
        assert step[LOGPS] < 0.02
        assert step[RATIO] == pytest.approx(1, abs=0.02)


def test_both_compute_in_one_type_and_the_engine_holds_what_it_must(train: Train) -> None:
    """The longest prompt is `12+12?`, 6 characters between <user> and <assistant>; an answer has 20 tokens."""
    assert train().engine["dtype"] == "torch.float32"
    assert train("launch.mixed_precision=bf16").engine["dtype"] == "torch.bfloat16"
    assert train().engine["max_model_len"] == 8 + 20


@pytest.mark.parametrize("words", [(), ("launch.mixed_precision=bf16",)], ids=["float32", "bfloat16"])
def test_new_weights_are_in_the_engine_after_each_step(words: tuple[str, ...], train: Train) -> None:
    """One hand-over for each step. The first one changes nothing in float32: the engine has loaded the same policy."""
    syncs, steps = train(*words).syncs, train(*words).metrics
    assert len(syncs) == STEPS
    assert all(step["train/grad_norm"] > 0 for step in steps)  # each step has changed the policy
    # bfloat16 keeps 8 bits: a weight between 1 and 2 is rounded by 2^-8 at most, a smaller one by less.
    assert max(sync["difference"] for sync in syncs) <= (2**-8 if words else 0)
    assert {sync["num_weights"] for sync in syncs} == {1 + 1 + 2 * 4}  # embedding, last norm, four in each layer
    assert all(later["before"] == sooner["after"] for sooner, later in itertools.pairwise(syncs))
    assert all(sync["before"] != sync["after"] for sync in syncs[1:])
    assert syncs[0]["before"] == syncs[0]["after"]


def test_two_seeds_sample_different_completions_to_one_prompt(train: Train) -> None:
    """Of the same policy, before the first step: eight completions of up to 16 tokens."""
    first, second = train(), train("seed=1")
    assert first.engine["seed"] != second.engine["seed"]
    assert first.rollouts != second.rollouts
    assert len({tuple(ids) for ids in first.rollouts}) > 1
