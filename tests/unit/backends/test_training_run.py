"""A real run of a few steps on a policy of a few thousand weights: what is told, and under which names."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from grpo_exp.backends.trl.training import TrainingOutcome, run_training, to_dataset
from grpo_exp.data.load import load_prompts
from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

WORDS = [
    "tracker=none", "launch=inline", "trainer.max_steps=2", "trainer.prompts_per_step=2",
    "trainer.max_completion_length=6", "trainer.eval_samples=2", "algorithm.num_generations=4", "dataset.eval_size=5",
    "dataset.train_size=20", "model.architecture.num_hidden_layers=1", "model.architecture.hidden_size=16",
    "model.architecture.intermediate_size=32", "model.architecture.num_attention_heads=2",
    "model.architecture.num_key_value_heads=1", "model.priming.steps=2", "model.priming.batch_size=4",
]  # fmt: skip
OUTCOMES = {
    f"train/rewards/{component}/{outcome}"
    for component in ("correctness", "format")
    for outcome in ("wrong", "timeout", "crash", "unjudgeable")
}
BEHAVIOURS = {f"behaviours/{name}_rate" for name in ("self_verification", "reflection", "backtracking", "alternatives")}
ALWAYS = OUTCOMES | {f"train/{name}" for name in BEHAVIOURS} | {
    "train/loss", "train/grad_norm", "train/learning_rate", "train/epoch", "train/num_tokens", "train/reward",
    "train/reward_std", "train/frac_reward_zero_std", "train/entropy", "train/rewards/correctness/mean",
    "train/rewards/correctness/std", "train/rewards/format/mean", "train/rewards/format/std",
    "train/completion_length/mean", "train/completion_length/min", "train/completion_length/max",
    "train/completion_length/terminated_mean", "train/completion_length/truncated_fraction",
    "train/clip_ratio/low_mean", "train/clip_ratio/low_min", "train/clip_ratio/high_mean",
    "train/clip_ratio/high_max", "train/clip_ratio/region_mean",
    "time/generate", "time/reward", "time/train", "time/step",
}  # fmt: skip
EVALUATION = {f"eval/{name}" for name in BEHAVIOURS} | {
    "eval/accuracy", "eval/greedy_accuracy", "eval/completion_length/mean",
    "eval/completion_length/truncated_fraction", "eval/rewards/correctness/mean", "eval/rewards/format/mean",
}  # fmt: skip


class Recorder:
    """Remembers what a run tells, and stops it after a step."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.phases: list[str] = []
        self.metrics: list[tuple[int, dict[str, float]]] = []
        self.tables: dict[TableInfo, list[CompletionRow]] = {}
        self._stop_after = stop_after

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None:
        self.phases.append(name)

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics.append((step, metrics))

    def on_completions(self, info: TableInfo, rows: list[CompletionRow]) -> None:
        self.tables[info] = rows

    def wants_stop(self) -> bool:
        steps = [step for step, metrics in self.metrics if "train/loss" in metrics]
        return self._stop_after is not None and len(steps) >= self._stop_after  # asked when a step has been told


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("cache")


def train(cache: Path, folder: Path, *words: str, recorder: Recorder | None = None) -> tuple[Recorder, TrainingOutcome]:
    recorder = recorder or Recorder()
    settings = load.to_settings(load.compose([*WORDS, *words]))
    plan = solve_batch(settings)
    data = load_prompts(settings.dataset, seed=settings.seed, plan=plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_EXP_CACHE", str(cache))
        outcome = run_training(settings, plan, data, recorder, model_dir=folder / "model", use_cpu=True)
    return recorder, outcome


@pytest.fixture(scope="module")
def grpo(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorder, TrainingOutcome, Path]:
    folder = tmp_path_factory.mktemp("run")
    return *train(cache, folder, "algorithm=grpo"), folder


def test_every_step_is_told_under_our_names_and_no_other(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    recorder, _, _ = grpo
    steps = [(step, metrics) for step, metrics in recorder.metrics if "train/loss" in metrics]
    assert [step for step, _ in steps] == [1, 2]
    for step, metrics in steps:
        # The mean length of completions that ended by themselves needs one that did.
        probed = {"train/kl_from_start"} if step == 2 else set()  # at the last step
        assert set(metrics) | {"train/completion_length/terminated_mean"} == ALWAYS | {"train/kl"} | probed
        assert all(math.isfinite(value) for value in metrics.values())


def test_reward_is_the_weighted_sum_of_its_components(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    """Weights 1 and 0.1; every target of this data set can be judged."""
    for _, metrics in grpo[0].metrics:
        if "train/loss" in metrics:
            parts = metrics["train/rewards/correctness/mean"] + 0.1 * metrics["train/rewards/format/mean"]
            assert metrics["train/reward"] == pytest.approx(parts, abs=1e-6)


def test_outcomes_are_counted_over_the_batch(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    """2 prompts x 4 completions: of 8, those are wrong that the mean of a 0/1 component leaves."""
    for _, metrics in grpo[0].metrics:
        if "train/loss" in metrics:
            mean, wrong = metrics["train/rewards/correctness/mean"], metrics["train/rewards/correctness/wrong"]
            assert wrong == pytest.approx(8 * (1 - mean), abs=1e-4)
            assert all(metrics[f"train/rewards/correctness/{o}"] == 0 for o in ("timeout", "crash", "unjudgeable"))


def test_one_update_a_batch_is_on_policy(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    """The ratio is exactly 1, so nothing is clipped; at the first step the KL to the start is 0."""
    steps = [metrics for _, metrics in grpo[0].metrics if "train/loss" in metrics]
    for metrics in steps:
        assert metrics["train/clip_ratio/low_mean"] == metrics["train/clip_ratio/high_mean"] == 0.0
    assert steps[0]["train/kl"] == pytest.approx(0.0, abs=1e-6)


def test_held_out_problems_are_measured_before_and_after(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    recorder, outcome, _ = grpo
    evaluations = [(step, set(metrics)) for step, metrics in recorder.metrics if "train/loss" not in metrics]
    assert evaluations == [(0, EVALUATION), (2, EVALUATION)]
    assert set(outcome.evaluation) == {"before", "after"}
    # 5 prompts x 2 samples each time; of training 2 prompts x 4 completions in the first step, and in the last
    assert {info: len(rows) for info, rows in recorder.tables.items()} == {
        TableInfo("eval", 0, 10): 10, TableInfo("train", 1, 8): 8, TableInfo("train", 2, 8): 8,
        TableInfo("eval", 2, 10): 10,
    }  # fmt: skip
    rows = recorder.tables[TableInfo("eval", 0, 10)]
    assert [row.group for row in rows] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert all(row.advantage is None and row.kept is None for row in rows)
    mean = sum(row.scores["correctness"].value or 0.0 for row in rows) / 10
    assert outcome.evaluation["before"]["accuracy"] == pytest.approx(mean)
    assert (outcome.steps, outcome.stopped) == (2, False)


def test_learning_rate_is_the_one_of_the_model_from_the_first_step(
    grpo: tuple[Recorder, TrainingOutcome, Path],
) -> None:
    rates = [metrics["train/learning_rate"] for _, metrics in grpo[0].metrics if "train/loss" in metrics]
    assert rates == [1e-4, 1e-4]


def test_trained_model_is_saved_with_its_tokenizer(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = grpo[2] / "model"
    AutoModelForCausalLM.from_pretrained(folder)
    assert AutoTokenizer.from_pretrained(folder).chat_template is not None


def test_phases_come_in_order(grpo: tuple[Recorder, TrainingOutcome, Path]) -> None:
    order = list(dict.fromkeys(grpo[0].phases))
    assert order == [
        "priming", "held-out accuracy before training", "training", "saving the model",
        "held-out accuracy after training",
    ]  # fmt: skip


def test_without_a_reference_there_is_no_kl(cache: Path, tmp_path: Path) -> None:
    recorder, outcome = train(
        cache, tmp_path, "algorithm=dapo", "trainer.eval_before=false", "trainer.save_model=false"
    )
    for _, metrics in recorder.metrics:
        assert "train/kl" not in metrics
    assert set(outcome.evaluation) == {"after"}
    assert not (tmp_path / "model").exists()


def test_same_seed_gives_the_same_metrics_whether_or_not_it_was_measured_before(cache: Path, tmp_path: Path) -> None:
    """Evaluating draws its own random numbers; times are no part of it."""

    def curve(*words: str) -> list[dict[str, float]]:
        recorder, _ = train(cache, tmp_path, "algorithm=dapo", "trainer.save_model=false", *words)
        steps = [metrics for _, metrics in recorder.metrics if "train/loss" in metrics]
        return [{name: v for name, v in metrics.items() if not name.startswith("time/")} for metrics in steps]

    first = curve("trainer.eval_before=true")
    assert curve("trainer.eval_before=false") == first
    assert curve("seed=1") != first


def test_run_that_is_asked_to_stop_ends_after_the_step_and_is_not_measured(cache: Path, tmp_path: Path) -> None:
    _, outcome = train(cache, tmp_path, "trainer.max_steps=5", recorder=Recorder(stop_after=2))
    assert (outcome.steps, outcome.stopped) == (2, True)
    assert set(outcome.evaluation) == {"before"}
    assert not (tmp_path / "model").exists()


class StopsInPhase(Recorder):
    """Asks for a stop the second time that it is asked in a phase: between its first two batches."""

    def __init__(self, phase: str) -> None:
        super().__init__()
        self.asked = 0
        self._phase = phase

    def wants_stop(self) -> bool:
        self.asked += self.phases[-1] == self._phase
        return self.asked >= 2


@pytest.mark.parametrize(("when", "steps", "measured"), [("before", 0, set()), ("after", 2, {"before"})])
def test_stop_ends_a_held_out_evaluation_that_is_going_on(
    when: str, steps: int, measured: set[str], cache: Path, tmp_path: Path
) -> None:
    """5 prompts x 2 samples in batches of 4 are 3 batches, and greedy ones come after them: it was asked twice."""
    recorder = StopsInPhase(f"held-out accuracy {when} training")
    _, outcome = train(cache, tmp_path, "model.max_micro_batch=4", recorder=recorder)
    assert recorder.asked == 2
    assert (outcome.steps, outcome.stopped) == (steps, True)
    evaluated = {{0: "before", 2: "after"}[info.step] for info in recorder.tables if info.kind == "eval"}
    assert set(outcome.evaluation) == evaluated == measured
    # What was trained to the end is kept.
    assert (tmp_path / "model" / "config.json").exists() == (when == "after")


def test_targets_of_both_kinds_become_one_column() -> None:
    """A column has one type: where one target is a list of spellings, all are."""
    rows = [PromptRow(build_prompt("a", None), "3"), PromptRow(build_prompt("b", None), ("1", "2"))]
    assert to_dataset(rows)["target"][:] == [["3"], ["1", "2"]]
    assert to_dataset(rows[:1])["target"][:] == ["3"]
