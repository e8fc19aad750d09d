"""Evaluating from settings to results, with an engine that answers from a table: what is kept, reused and tracked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_exp import evaluating
from grpo_exp.checkpoints.sources import sources_of
from grpo_exp.commands import evaluate as evaluate_command
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.evaluating import prepare, run_evaluation
from grpo_exp.evaluation.held_out import Completion
from grpo_exp.evaluation.results import folder_of, read_results
from grpo_exp.evaluation.saved_completions import read_rows
from grpo_exp.reporting.evaluation_view import print_results
from grpo_exp.run_lock import Lock, OwnedError
from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.settings.load_evaluation import load_evaluation
from grpo_exp.tracking.metrics_log import MetricsLog
from unit.run_folder import a_console, a_result, settings_of

NUM_PROMPTS = 5


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Return a run that completed 5 steps and left a model."""
    directory = RunDirectory(tmp_path / "run")
    (directory.log_root / "attempt-1").mkdir(parents=True)
    write_json(directory.config_json, settings_of(tmp_path, f"dataset.eval_size={NUM_PROMPTS}").model_dump(mode="json"))
    write_json(directory.result, a_result(steps=5))
    directory.metrics.write_text(json.dumps({"step": 5, "time": 1.0, "metrics": {"train/loss": 0.0}}) + "\n")
    directory.model.mkdir()
    (directory.model / "config.json").write_text("{}")
    return directory


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand for a model: the trained one is right in 3 samples of 4, the one before in 1; return what was loaded."""
    loaded: list[str] = []

    def build_engine(settings: Any, model: Any, **_: Any) -> Callable[..., list[list[Completion]]]:
        loaded.append(model.kind)
        num_right = 3 if model.kind == "local" else 1

        def generate(prompts: Sequence[Any], num_samples: int, *, greedy: bool = False) -> list[list[Completion]]:
            groups = []
            for prompt in prompts:
                left, right = prompt[-1]["content"].rstrip("?").split("+")
                answers = [int(left) + int(right) + (0 if i < num_right else i) for i in range(num_samples)]
                groups.append([Completion(rf"<think>x</think>\boxed{{{a}}}", 9, False) for a in answers])
            return groups

        return generate

    monkeypatch.setattr("grpo_exp.backends.sampling.engines.build_engine", build_engine)
    return loaded


def evaluate(run: RunDirectory, *words: str) -> tuple[dict[int, dict[str, Any]], str]:
    settings = load_evaluation(words, run=run.read_config())
    sources = sources_of(run, settings, settings.checkpoints)
    console, out = a_console()
    found = run_evaluation(prepare(settings, sources, folder_of(run.path, settings.benchmark.name), run), console)
    return found, out.getvalue()


def test_results_of_two_steps_and_the_change_between_them(run: RunDirectory, engine: list[str]) -> None:
    """1 of 4 right: pass@2 = 1/2. 3 of 4: pass@2 = 1, and the three outvote the one wrong answer."""
    results, _ = evaluate(run, "checkpoints=all", "num_samples=4")
    assert engine == ["tiny", "local"]
    before, after = ({n: m["value"] for n, m in results[step]["metrics"].items()} for step in (0, 5))
    assert (before["mean_at_4"], before["pass_at_2"], after["mean_at_4"]) == (0.25, 0.5, 0.75)
    assert (after["pass_at_2"], after["maj_at_4"]) == (1.0, 1.0)
    assert results[5]["change"]["value"] == pytest.approx(0.5)
    assert list(read_results(run.path)["held_out"]) == [0, 5]


@pytest.mark.usefixtures("engine")
def test_samples_are_a_table_that_score_reads(run: RunDirectory) -> None:
    evaluate(run, "num_samples=4")
    rows = read_rows("input", run.path / "evaluations" / "held_out" / "step_000005.parquet")
    assert len(rows) == NUM_PROMPTS * 4
    assert sum(row["components"]["correctness"]["value"] for row in rows) == NUM_PROMPTS * 3
    assert {row["group"] for row in rows} == set(range(NUM_PROMPTS))


def test_what_is_known_is_not_measured_again_unless_something_changed(run: RunDirectory, engine: list[str]) -> None:
    evaluate(run, "num_samples=4")
    _, told = evaluate(run, "num_samples=4")
    assert "step 5: has this result already" in told
    assert len(engine) == 1
    evaluate(run, "num_samples=8")
    evaluate(run, "num_samples=8", "reward=math_only")
    assert len(engine) == 3


@pytest.mark.parametrize("content", ['{"key": ', "[]"])
def test_damaged_result_is_measured_again(run: RunDirectory, engine: list[str], content: str) -> None:
    """So says whoever finds it: grpo-exp report and show name the file and this command."""
    evaluate(run, "num_samples=4")
    path = folder_of(run.path, "held_out").result(5)
    before = json.loads(path.read_text())
    path.write_text(content)
    evaluate(run, "num_samples=4")
    assert len(engine) == 2
    assert json.loads(path.read_text())["metrics"] == before["metrics"]


@pytest.mark.usefixtures("engine")
def test_run_whose_curves_lack_nothing_is_not_owned(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that starts in that moment would be refused, and one that goes on lacks nothing either."""
    evaluate(run, "num_samples=4")
    monkeypatch.setattr(Lock, "acquire", lambda self: pytest.fail("the run was taken"))
    _, told = evaluate(run, "num_samples=4")
    assert "has this result already" in told
    assert "left alone" not in told


def test_the_change_is_told_where_the_later_step_was_measured_first(run: RunDirectory, engine: list[str]) -> None:
    evaluate(run, "checkpoints=[5]", "num_samples=4")
    results, _ = evaluate(run, "checkpoints=[0,5]", "num_samples=4")
    assert engine == ["local", "tiny"]
    assert results[5]["change"]["value"] == pytest.approx(0.5)
    saved = json.loads(folder_of(run.path, "held_out").result(5).read_text())
    assert saved["change"]["since_step"] == 0


@pytest.mark.usefixtures("engine")
def test_values_of_columns_are_shown_as_they_are(run: RunDirectory, tmp_path: Path) -> None:
    """Brackets are markup of the console: `[/x]` ended the command with a traceback, `[easy]` was not shown."""
    rows = [{"problem": "1+2?", "answer": "3", "kind": kind} for kind in ("[easy]", "a [/x]")]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = [f"benchmark.path={tmp_path / 'rows.jsonl'}", "benchmark.name=b", "benchmark.group_by=[kind]"]
    results, _ = evaluate(run, "benchmark=jsonl", *words, "num_samples=4")
    console, out = a_console()
    print_results(console, {5: {**results[5], "unjudged": 2}})
    assert "[easy]" in out.getvalue()
    assert "a [/x]" in out.getvalue()
    assert "2 prompts could not be judged" in out.getvalue()


@pytest.mark.parametrize(("key", "name"), [("group_by", "target"), ("group_by", "prompt"), ("extra_columns", "target")])
@pytest.mark.usefixtures("engine")
def test_columns_that_would_take_the_place_of_the_target_are_refused(
    run: RunDirectory, tmp_path: Path, key: str, name: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"problem": "1+2?", "answer": "3", name: "4"}) + "\n")
    words = [f"benchmark.path={tmp_path / 'rows.jsonl'}", "benchmark.name=b", f"benchmark.{key}=[{name}]"]
    with pytest.raises(DataError, match=rf"benchmark.{key}=\[{name}\]: each sample has a '{name}' of its own"):
        evaluate(run, "benchmark=jsonl", *words)


@pytest.mark.usefixtures("engine")
def test_results_become_curves_of_the_run_at_their_steps(run: RunDirectory) -> None:
    evaluate(run, "checkpoints=all", "num_samples=4")
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    name = "benchmark/held_out/pass_at_2"
    assert {line["step"]: line["metrics"][name] for line in lines if name in line["metrics"]} == {0: 0.5, 5: 1.0}


@pytest.mark.usefixtures("engine")
def test_curves_of_a_run_that_goes_on_are_left_alone(run: RunDirectory) -> None:
    run.lock.write_text(json.dumps({"host": "elsewhere", "pid": 1, "start": "1"}))  # a heartbeat of this moment
    before = run.metrics.read_text()
    _, told = evaluate(run, "num_samples=4")
    assert "this run is going on in process 1 on elsewhere" in told
    assert f"the results are kept in {run.path / 'evaluations'}, and its curves were left alone" in told
    assert run.metrics.read_text() == before
    run.lock.unlink()
    for _ in range(2):  # repeated as it says, with the result that is there already; and once more
        evaluate(run, "num_samples=4")
        assert run.metrics.read_text().count("benchmark/held_out/pass_at_2") == 1


@pytest.mark.usefixtures("engine")
def test_attempt_that_begins_while_curves_are_written_is_kept_out(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would cut the file that is being appended to. It may begin as soon as the line is written."""
    tried: list[str] = []

    class Slow(MetricsLog):
        def append(self, *given: Any, **named: Any) -> Any:
            with pytest.raises(OwnedError, match="this run is going on in process"):
                Lock(run.lock).acquire()
            tried.append("while a line was written")
            return super().append(*given, **named)

    monkeypatch.setattr(evaluating, "MetricsLog", Slow)
    evaluate(run, "num_samples=4")
    assert tried == ["while a line was written"]
    after = Lock(run.lock)
    after.acquire()
    after.release()


def test_steps_that_are_not_there_are_refused_with_those_that_are(run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"has nothing of step 3; it has 0, 5"):
        evaluate(run, "checkpoints=[3]")


def test_a_run_without_weights_says_what_can_be_evaluated(run: RunDirectory) -> None:
    (run.model / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"neither a trained model nor a complete checkpoint"):
        evaluate(run)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--all"], "Usage: grpo-exp evaluate"),
        (["one", "two"], "Usage: grpo-exp evaluate"),
        (["checkpoints=all"], "a model has none"),
        (["nowhere"], "there is no such folder"),
    ],
)
def test_wrong_words_are_refused(words: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        evaluate_command.main(words)


def test_a_model_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"is a model and no run; write model=local model.path="):
        evaluate_command.main([str(tmp_path)])


def test_settings_are_shown_without_evaluating(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_command.main([str(run.path), "benchmark=math500", "--cfg"]) == 0
    assert "path: HuggingFaceH4/MATH-500" in capsys.readouterr().out
