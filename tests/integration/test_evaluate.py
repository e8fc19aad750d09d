"""`grpo-exp evaluate` on a run with checkpoints: results, samples that can be scored again, curves in the tracker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mlflow
import pytest

from integration.command import QUICK_MODEL, Finished, only_run, read_lines, run_command, run_train

pytestmark = (
    pytest.mark.long
)  # a run, and processes that each load torch; tests/unit/test_evaluating.py is the fast part

RUN = ("trainer.max_steps=2", "trainer.prompts_per_step=2", "algorithm.num_generations=4", "dataset.eval_size=6",
       "launch=inline", "trainer.checkpoint.every_steps=1", "trainer.eval_before=false", *QUICK_MODEL)  # fmt: skip


def evaluate(*words: str, cwd: Path) -> Finished:
    return run_command(sys.executable, "-m", "grpo_exp", "evaluate", *words, cwd=cwd)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluate")
    done = run_train(*RUN, cwd=folder)
    assert done.code == 0, done.output
    return only_run(folder / "outputs")


@pytest.fixture(scope="module")
def evaluated(run: Path) -> Finished:
    done = evaluate(str(run), "checkpoints=all", "num_samples=4", cwd=run)
    assert done.code == 0, done.output
    return done


@pytest.mark.usefixtures("evaluated")
def test_all_checkpoints_are_measured_on_the_same_prompts(run: Path) -> None:
    folder = run / "evaluations" / "held_out"
    results = [json.loads((folder / f"step_{step:06}.json").read_text()) for step in (0, 1, 2)]
    for result in results:
        assert set(result["metrics"]) == {"mean_at_4", "pass_at_1", "pass_at_2", "pass_at_4", "maj_at_2", "maj_at_4"}
        values = {name: metric["value"] for name, metric in result["metrics"].items()}
        assert values["pass_at_1"] == pytest.approx(values["mean_at_4"])
        assert values["pass_at_1"] <= values["pass_at_2"] <= values["pass_at_4"] <= 1
        assert (result["num_prompts"], len(result["prompt_means"])) == (6, 6)
    assert results[2]["change"]["since_step"] == 0
    assert (folder / "curve.csv").read_text().count("\n") == 1 + 3 * 6
    assert (folder / "curve.png").is_file()


@pytest.mark.usefixtures("evaluated")
def test_samples_are_scored_again_to_the_same_values(run: Path, tmp_path: Path) -> None:
    samples, scored = run / "evaluations" / "held_out" / "step_000002.parquet", tmp_path / "scored.jsonl"
    done = run_command(
        sys.executable, "-m", "grpo_exp", "score", f"input={samples}", f"output={scored}", f"--against={samples}",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.output
    assert "24 of 24 completions are in both" in done.output
    rows = read_lines(scored)
    result = json.loads(samples.with_suffix(".json").read_text())
    mean = sum(row["components"]["correctness"]["value"] for row in rows) / len(rows)
    assert mean == pytest.approx(result["metrics"]["mean_at_4"]["value"])


@pytest.mark.usefixtures("evaluated")
def test_results_are_in_the_curves_and_in_the_run_of_the_tracker(run: Path) -> None:
    name = "benchmark/held_out/pass_at_4"
    curve = {r["step"]: r["metrics"][name] for r in read_lines(run / "metrics.jsonl") if name in r["metrics"]}
    assert list(curve) == [0, 1, 2]
    state = json.loads((run / "tracker.json").read_text())["mlflow"]
    client = mlflow.MlflowClient(f"sqlite:///{run.parents[1] / 'mlflow.db'}")
    history = {metric.step: metric.value for metric in client.get_metric_history(state["ids"]["run_id"], name)}
    assert history == pytest.approx(curve)


def test_the_same_command_measures_nothing_again(run: Path, evaluated: Finished) -> None:
    before = (run / "metrics.jsonl").read_text()
    again = evaluate(str(run), "checkpoints=all", "num_samples=4", cwd=run)
    assert again.code == 0
    assert again.output.count("has this result already") == 3
    assert (run / "metrics.jsonl").read_text() == before
    assert again.cpu_seconds < evaluated.cpu_seconds


def test_one_checkpoint_on_a_file_by_level(run: Path, tmp_path: Path) -> None:
    rows = [{"problem": f"{i}+2?", "answer": i + 2, "level": i % 2 + 1} for i in range(4)]
    (tmp_path / "mine.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ("benchmark=jsonl", "benchmark.path=mine.jsonl", "benchmark.name=mine", "benchmark.group_by=[level]",
             "track=false", "num_samples=2")  # fmt: skip
    done = evaluate(str(run / "checkpoints" / "checkpoint-1"), *words, cwd=tmp_path)
    assert done.code == 0, done.output
    assert "by level" in done.output
    result = json.loads((run / "evaluations" / "mine" / "step_000001.json").read_text())
    assert [group["num_prompts"] for group in result["groups"]["level"].values()] == [2, 2]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["checkpoints=[7]"], "has nothing of step 7; it has 0, 1, 2"),
        (["benchmark=math50"], "did you mean benchmark=math500?"),
        (["num_samples=2", "k=[4]"], "k: 4 is more than num_samples=2"),
        (["benchmark=jsonl", "benchmark.path=none.jsonl"], "cannot be read (No such file"),
    ],
)
def test_faults_come_before_a_model_is_loaded(run: Path, words: list[str], told: str) -> None:
    done = evaluate(str(run), *words, cwd=run)
    assert done.code == 2
    assert told in done.output
    assert done.cpu_seconds < 4
