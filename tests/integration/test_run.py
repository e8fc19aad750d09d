"""A short run with the real command: what it leaves, what it prints, and that it repeats."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from grpo_exp.evaluation.saved_completions import read_rows
from integration.command import (
    QUICK_MODEL,
    only_run,
    read_lines,
    run_command,
    run_train,
    without_times,
)

# The barely primed policy has dead groups only, and would go through all rounds.
SMOKE = ("algorithm=dapo", "reward=math", "experiment=smoke", "algorithm.dynamic_sampling.max_rounds=2", *QUICK_MODEL)


@pytest.fixture(scope="module")
def smoke_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the smoke run has ended."""
    folder = tmp_path_factory.mktemp("smoke")
    finished = run_train(*SMOKE, cwd=folder)
    (folder / "output.txt").write_text(finished.output)
    assert finished.code == 0, finished.output
    return folder


def test_the_run_folder_holds_everything(smoke_folder: Path) -> None:
    run = only_run(smoke_folder / "outputs")
    assert re.fullmatch(r"[0-9a-f]{8}-s0", run.name)
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"], result["resumable"]) == ("completed", 3, False)
    for when in ("before", "after"):
        assert 0 <= result["eval"][when]["accuracy"] <= 1
        assert 0 <= result["eval"][when]["greedy_accuracy"] <= 1
    # 16 held-out problems x 4 samples; of training the first and the last step
    names = ["eval_000000", "eval_000003", "train_000001", "train_000003"]
    assert sorted(path.stem for path in (run / "completions").iterdir()) == names
    counts = [len(read_rows("input", run / "completions" / f"{name}.parquet")) for name in names[:2]]
    assert counts == [64, 64]
    assert (run / "overrides.txt").read_text().splitlines() == list(SMOKE)
    assert (run / "plots" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (run / "model" / "config.json").is_file()
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["packages"]["trl"].startswith("1.16.")
    assert len(provenance["dataset_fingerprint"]) == 16
    assert not (run / "lock.json").exists()
    assert not (run / "status.json").exists()


def test_every_curve_has_a_point_at_every_step(smoke_folder: Path) -> None:
    records = read_lines(only_run(smoke_folder / "outputs") / "metrics.jsonl")
    assert [r["step"] for r in records] == [0, 1, 2, 3, 3]  # held out, three steps, held out
    for record in records[1:4]:
        metrics = record["metrics"]
        for name in (
            "train/reward", "train/reward_std", "train/rewards/correctness/mean", "train/rewards/format/mean",
            "train/completion_length/mean", "train/completion_length/min", "train/completion_length/max",
            "train/completion_length/truncated_fraction", "train/clip_ratio/low_mean", "train/clip_ratio/high_mean",
            "train/frac_reward_zero_std", "train/learning_rate", "train/grad_norm", "train/loss",
            "time/generate", "time/reward", "time/train", "time/step",
            "train/dynamic_sampling/rounds", "train/dynamic_sampling/acceptance_rate",
            "train/dynamic_sampling/discarded_completions", "train/dynamic_sampling/discarded_tokens",
            "train/dynamic_sampling/filled_groups", "train/dynamic_sampling/rewards/correctness/mean",
        ):  # fmt: skip
            assert name in metrics
        # Completions of groups whose rewards are all equal are not run, so a step of such groups has no entropy.
        assert ("train/entropy" in metrics) == (metrics["train/frac_reward_zero_std"] < 1)
        # beta is 0 in dapo, so there is no reference model and no KL: absent, not 0.
        assert "train/kl" not in metrics
        parts = metrics["time/generate"] + metrics["time/reward"] + metrics["time/train"]
        assert parts == pytest.approx(metrics["time/step"])
        # reward = 1.0 x correctness + 0.1 x format + 1.0 x overlong
        means = {name: metrics[f"train/rewards/{name}/mean"] for name in ("correctness", "format", "overlong")}
        expected = means["correctness"] + 0.1 * means["format"] + means["overlong"]
        assert metrics["train/reward"] == pytest.approx(expected, abs=1e-6)


def test_the_person_sees_a_table_and_no_noise(smoke_folder: Path) -> None:
    output = (smoke_folder / "output.txt").read_text()
    for text in ("32 a step", "reward", "correctness", "format", "overlong", "length", "clipped", "entropy", "ETA"):
        assert text in output
    for text in (
        "Held-out prompts",
        "sampled accuracy",
        "greedy accuracy",
        "curves.png",
        "mlflow ui --backend-store",
    ):
        assert text in output
    for noise in ("Warning", "{'loss'", "Traceback", "deprecated"):
        assert noise not in output


def test_mlflow_has_the_same_curves(smoke_folder: Path) -> None:
    from mlflow import MlflowClient

    run = only_run(smoke_folder / "outputs")
    client = MlflowClient(f"sqlite:///{smoke_folder}/outputs/mlflow.db")
    ids = [r.info.run_id for e in client.search_experiments() for r in client.search_runs([e.experiment_id])]
    assert ids == [json.loads((run / "tracker.json").read_text())["mlflow"]["ids"]["run_id"]]
    found = {(m.step, m.value) for m in client.get_metric_history(ids[0], "train/reward")}
    records = read_lines(run / "metrics.jsonl")
    assert found == {(r["step"], r["metrics"]["train/reward"]) for r in records if "train/reward" in r["metrics"]}
    assert client.get_run(ids[0]).info.status == "FINISHED"


def test_a_finished_run_is_not_run_again(smoke_folder: Path) -> None:
    before = (only_run(smoke_folder / "outputs") / "metrics.jsonl").read_bytes()
    finished = run_train(*SMOKE, cwd=smoke_folder)
    assert finished.code == 0
    assert "done already" in finished.output
    assert "sampled accuracy" in finished.output
    assert (only_run(smoke_folder / "outputs") / "metrics.jsonl").read_bytes() == before


def test_the_same_seed_gives_the_same_run(smoke_folder: Path) -> None:
    """The second run lies beside the first one, and every number but the times is the same, in place as launched."""
    first = only_run(smoke_folder / "outputs")
    finished = run_train(*SMOKE, "resume=never", "tracker=none", "launch=inline", cwd=smoke_folder)
    assert finished.code == 0, finished.output
    second = first.with_name(f"{first.name}-2")
    try:
        records = [without_times(read_lines(run / "metrics.jsonl")) for run in (first, second)]
        assert records[0] == records[1]
    finally:
        second.rename(smoke_folder / "second")  # other tests ask for the only run


@pytest.mark.long
def test_another_seed_gives_another_run_in_place_and_with_wandb(smoke_folder: Path, tmp_path: Path) -> None:
    finished = run_train(
        *SMOKE, "seed=1", "launch=inline", "tracker=wandb", "tracker.wandb.mode=offline", cwd=tmp_path, timeout=300
    )
    assert finished.code == 0, finished.output
    run = only_run(tmp_path / "outputs")
    assert run.name.endswith("-s1")
    first = read_lines(only_run(smoke_folder / "outputs") / "metrics.jsonl")
    assert without_times(read_lines(run / "metrics.jsonl")) != without_times(first)
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
    assert "wandb sync" in finished.output
    assert "sampled accuracy" in finished.output
    assert "Warning" not in finished.output


@pytest.mark.long
def test_grpo_has_a_kl_curve(tmp_path: Path) -> None:
    """Beta is 0.04 in grpo. The first step is on the reference itself, so its KL is 0 up to rounding."""
    finished = run_train(
        "algorithm=grpo", "experiment=smoke", "tracker=none", "launch=inline", *QUICK_MODEL, cwd=tmp_path
    )
    assert finished.code == 0, finished.output
    records = read_lines(only_run(tmp_path / "outputs") / "metrics.jsonl")
    curve = [r["metrics"]["train/kl"] for r in records if "train/loss" in r["metrics"]]
    assert len(curve) == 3
    assert curve[0] == pytest.approx(0, abs=1e-6)
    assert curve[2] > 0


def test_own_rows_and_own_model(smoke_folder: Path, tmp_path: Path) -> None:
    """The README's own data and own model: rows from a file, and the model that the smoke run saved."""
    rows = [json.dumps({"question": f"{n}+3?", "answer": n + 3}) for n in range(40)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    finished = run_train(
        "model=local", f"model.path={only_run(smoke_folder / 'outputs') / 'model'}", "model.dtype=float32",
        "dataset=jsonl", "dataset.path=rows.jsonl", "dataset.prompt_column=question", "dataset.target_column=answer",
        "experiment=smoke", "tracker=none", "launch=inline", "trainer.max_completion_length=20",
        cwd=tmp_path,
    )  # fmt: skip
    assert finished.code == 0, finished.output
    run = only_run(tmp_path / "outputs")
    # 40 rows, a fifth of them held out, x 4 samples
    assert len(read_rows("input", run / "completions" / "eval_000003.parquet")) == 32


def test_commands_read_the_run(smoke_folder: Path) -> None:
    run = only_run(smoke_folder / "outputs")
    shown = run_command(sys.executable, "-m", "grpo_exp", "show", str(run), cwd=smoke_folder)
    assert shown.code == 0
    assert "sampled accuracy" in shown.output
    drawn = run_command(sys.executable, "-m", "grpo_exp", "plot", str(run), "curves.png", cwd=smoke_folder)
    assert drawn.code == 0
    assert (smoke_folder / "curves.png").stat().st_size > 10_000
    listed = run_command(sys.executable, "-m", "grpo_exp", "--help", cwd=smoke_folder)
    for name in ("check", "plot", "prime", "show"):
        assert name in listed.output
    wrong = run_command(sys.executable, "-m", "grpo_exp", "chek", cwd=smoke_folder)
    assert wrong.code == 2
    assert "did you mean check" in wrong.output


def test_check_starts_nothing(tmp_path: Path) -> None:
    checked = run_command(sys.executable, "-m", "grpo_exp", "check", *SMOKE, cwd=tmp_path)
    assert checked.code == 0
    # 4 prompts x 8 = 32
    assert "4 prompts x 8 completions = 32 a step" in checked.output
    assert not list(tmp_path.iterdir())
    assert os.environ["GRPO_EXP_CACHE"]  # the suite's own: the user's cache is left alone
