"""Two gloo processes on a CPU: one run, one tracker run, and groups that belong to one prompt."""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_exp.errors import RunError
from grpo_exp.evaluation.saved_completions import read_rows
from grpo_exp.rundir import RunDirectory, begin_attempt, write_json
from grpo_exp.settings import load
from grpo_exp.worker import run_worker
from integration.command import QUICK_MODEL, Finished, only_run, read_lines, run_command, run_train

SMOKE = ("algorithm=dapo", "experiment=smoke", "algorithm.dynamic_sampling.max_rounds=2", *QUICK_MODEL)


def test_launch_ddp_is_one_run(tmp_path: Path) -> None:
    finished = run_train(*SMOKE, "launch=ddp", cwd=tmp_path)
    assert finished.code == 0, finished.output
    # 4 prompts x 8 = 32 completions, 16 on each process
    assert "32 a step = 2 processes x 1 micro-step x 16" in finished.output
    run = only_run(tmp_path / "outputs")
    records = read_lines(run / "metrics.jsonl")
    assert [r["step"] for r in records] == [0, 1, 2, 3, 3]
    assert json.loads((run / "result.json").read_text())["eval"]["after"]["num_prompts"] == 16
    # 16 held-out problems x 4 samples: each was answered by one process
    assert len(read_rows("input", run / "completions" / "eval_000003.parquet")) == 64

    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{tmp_path}/outputs/mlflow.db")
    assert sum(len(client.search_runs([e.experiment_id])) for e in client.search_experiments()) == 1
    assert [path.name for path in (run / "logs" / "attempt-1").glob("tracker-*")] == ["tracker-mlflow.log"]


@pytest.mark.long
def test_groups_belong_to_one_prompt(tmp_path: Path) -> None:
    """Each block of G = 6 gathered completions answers one prompt.

    2 processes x 9 completions: the second of the three groups lies on both, which must not mix prompts.
    """
    worker = Path(__file__).with_name("record_groups.py")
    out = tmp_path / "groups.json"
    finished = run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        str(worker), str(out), *QUICK_MODEL,
        cwd=tmp_path, env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.code == 0, finished.output
    steps = json.loads(out.read_text())
    assert len(steps) == 2
    for prompts in steps:
        assert len(prompts) == 18
        groups = [prompts[start : start + 6] for start in range(0, 18, 6)]
        assert all(len(set(group)) == 1 for group in groups)
        assert len({group[0] for group in groups}) == 3


def advantages_of(rewards: list[float], size: int) -> list[float]:
    """(r - mean) / (std + 1e-4) in each group, with the std of a sample."""
    groups = [rewards[start : start + size] for start in range(0, len(rewards), size)]
    return [
        (reward - statistics.fmean(group)) / (statistics.stdev(group) + 1e-4) for group in groups for reward in group
    ]


def check_table(table: dict[str, Any]) -> None:
    """Work every row out again: question and target, completion and reason, value, reward; groups of 6 are whole."""
    rows = table["rows"]
    assert len(rows) == table["info"]["num_rows"]  # there is room for all
    assert [row["group"] for row in rows] == [place // 6 for place in range(len(rows))]
    for row in rows:
        left, right = row["prompt"].removesuffix("?").split("+")
        assert row["target"] == str(int(left) + int(right))
        total, _, text = row["scores"]["correctness"]["reason"].partition(":")
        assert text == row["completion"]
        # As `record_kept_rows` pays: nobody can judge 10, 20, ...; of the others odd sums of odd targets.
        value = None if row["target"][-1] == "0" else float(int(row["target"]) % 2 and int(total) % 2)
        assert row["scores"]["correctness"]["value"] == value
        assert row["reward"] == value
    for start in range(0, len(rows), 6):
        group = rows[start : start + 6]
        assert len({row["prompt"] for row in group}) == 1
        assert len({row["kept"] for row in group}) == 1
        if not group[0]["kept"]:
            assert [row["advantage"] for row in group] == [None] * 6
        elif group[0]["reward"] is None:
            assert [row["advantage"] for row in group] == [0.0] * 6
        else:
            rewards = [row["reward"] for row in group]
            assert [row["advantage"] for row in group] == pytest.approx(advantages_of(rewards, 6), abs=1e-5)


@pytest.mark.long
def test_table_of_two_processes_holds_every_row_with_what_is_its_own(tmp_path: Path) -> None:
    """Without dynamic sampling, 2 x 9 rows a step: the second of three groups lies on both; some cannot be judged."""
    worker = Path(__file__).with_name("record_tables.py")
    out = tmp_path / "tables.json"
    finished = run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        str(worker), str(out), *QUICK_MODEL,
        cwd=tmp_path, env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.code == 0, finished.output
    tables = json.loads(out.read_text())
    assert [table["info"] for table in tables] == [{"kind": "train", "step": s, "num_rows": 18} for s in range(1, 9)]
    for table in tables:
        check_table(table)
        assert all(row["kept"] for row in table["rows"])
    rewards = [row["reward"] for table in tables for row in table["rows"]]
    assert {None, 0.0, 1.0} == set(rewards)


@pytest.mark.parametrize(
    ("words", "size"),
    [
        # 2 processes x 9 completions: the second of three groups lies on both.
        pytest.param(["trainer.prompts_per_step=3", "trainer.max_steps=2"], 18, id="accumulation 1"),
        # 4 prompts x 6 a step are 12 on each process in 4 micro-steps of 3; a batch is two steps.
        pytest.param(
            [
                "trainer.prompts_per_step=4",
                "trainer.per_device_train_batch_size=3",
                "algorithm.updates_per_batch=2",
                "trainer.max_steps=4",
            ],
            48,
            id="accumulation 4, two updates a batch",
            marks=pytest.mark.long,
        ),
    ],
)
def test_replaced_groups_stay_whole_on_two_processes(words: list[str], size: int, tmp_path: Path) -> None:
    """Each row is worked out again: question and target, text, reward; and its group varies."""
    worker = Path(__file__).with_name("record_kept_rows.py")
    out = tmp_path / "rows.json"
    finished = run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        str(worker), str(out), *QUICK_MODEL, *words,
        cwd=tmp_path, env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert finished.code == 0, finished.output
    found = json.loads(out.read_text())
    batches, tables = found["batches"], found["tables"]
    assert len(batches) == len(tables) == 2
    assert any(batch["metrics"]["dynamic_sampling/rounds"] > 1 for batch in batches)
    for batch in batches:
        first, second = batch["processes"]
        assert len(first["ids"]) == len(second["ids"]) == size // 2
        assert first["ids"] != second["ids"]  # each process samples for itself
        prompts, targets, ids = (first[name] + second[name] for name in ("prompts", "targets", "ids"))
        questions = [prompt.removesuffix("?").split("+") for prompt in prompts]
        assert targets == [str(int(left) + int(right)) for left, right in questions]
        rewards = [float(int(target) % 2 and sum(row) % 2) for target, row in zip(targets, ids, strict=True)]
        assert batch["rewards"] == rewards
        for start in range(0, size, 6):
            assert len(set(prompts[start : start + 6])) == 1
            assert set(rewards[start : start + 6]) == {0.0, 1.0}
        assert batch["advantages"] == pytest.approx(advantages_of(rewards, 6), abs=1e-5)
        tokens = sum(len(row) for row in ids)
        assert batch["num_items_in_batch"] == [tokens, tokens]
        longest = [max(len(row) for row in process["ids"]) for process in batch["processes"]]
        assert batch["padded"] == [[size // 2, longest[0]], [size // 2, longest[1]]]
        assert batch["positions"][0] == batch["positions"][1]
        assert batch["metrics"]["dynamic_sampling/filled_groups"] == 0
    for batch, table in zip(batches, tables, strict=True):
        check_table(table)
        first, second = batch["processes"]
        kept = [row for row in table["rows"] if row["kept"]]
        assert [row["completion"] for row in kept] == first["texts"] + second["texts"]
        assert [row["target"] for row in kept] == first["targets"] + second["targets"]
        assert [row["length"] for row in kept] == [len(ids) for ids in first["ids"] + second["ids"]]
        assert [row["reward"] for row in kept] == batch["rewards"]
        assert [row["advantage"] for row in kept] == batch["advantages"]
        discarded = table["info"]["num_rows"] - len(kept)
        assert discarded == batch["metrics"]["dynamic_sampling/discarded_completions"]


def test_a_worker_refuses_another_world_size(tmp_path: Path) -> None:
    """A run that was solved for two processes is started with one."""
    settings = load.to_settings(load.compose([*SMOKE, "launch=ddp", "tracker=none", f"output_dir={tmp_path}"]))
    run = RunDirectory(tmp_path / "run")
    begin_attempt(run)
    write_json(run.config_json, settings.model_dump(mode="json"))
    write_json(run.provenance, {})
    with pytest.raises(RunError, match="1 worker process"):
        run_worker(run)
    result = json.loads(run.result.read_text())
    assert result["status"] == "failed"
    assert "launch.num_processes=2: 1 worker process(es) came together" in result["reason"]


def launched(*words: str, num_processes: int, cwd: Path) -> Finished:
    return run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(num_processes),
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        "-m", "grpo_exp.train", *words,
        cwd=cwd, env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.long
def test_started_by_accelerate_launch(tmp_path: Path) -> None:
    """Rank 0 composes; the other process gets the folder from it. One run folder, one table."""
    finished = launched(*SMOKE, "tracker=none", num_processes=2, cwd=tmp_path)
    assert finished.code == 0, finished.output
    run = only_run(tmp_path / "outputs")
    assert json.loads((run / "config.json").read_text())["launch"]["num_processes"] == 2
    assert finished.output.count("sampled accuracy") == 1
    # The main process shows the steps, as everywhere: one header, one line a step of the smoke run's three.
    # Date and time stand in front.
    steps = re.findall(r"^[0-9-]{10} [0-9:]{8} +([0-9]+/3) ", finished.output, flags=re.MULTILINE)
    assert steps == ["1/3", "2/3", "3/3"]


@pytest.mark.long
def test_what_accelerate_launch_cannot_start(tmp_path: Path) -> None:
    refused = launched(*SMOKE, "launch.num_processes=3", num_processes=2, cwd=tmp_path)
    assert refused.code != 0
    assert "accelerate launch started 2" in refused.output
    multirun = launched("--multirun", "seed=0,1", num_processes=2, cwd=tmp_path)
    assert multirun.code != 0
    assert "cannot run inside accelerate launch" in multirun.output
