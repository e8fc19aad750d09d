"""The report of one run, as Markdown: sections for what there is, and what must be known about it."""

from __future__ import annotations

from pathlib import Path

from grpo_exp.evaluation.results import folder_of
from grpo_exp.reporting.report.markdown import to_markdown
from grpo_exp.reporting.report.run_data import read_run
from grpo_exp.reporting.report.run_report import build_run_report
from grpo_exp.rundir import RunDirectory, write_json
from unit.run_folder import a_result, settings_of


def report_of(folder: Path, *, num_samples: tuple[int, int]) -> str:
    """Return the report of a run whose steps 0 and 5 were measured with so many samples a prompt."""
    directory = RunDirectory(folder / "run")
    directory.path.mkdir(parents=True)
    settings = settings_of(folder).model_dump(mode="json")
    write_json(directory.result, a_result())
    for step, number in zip((0, 5), num_samples, strict=True):
        metrics = {f"mean_at_{number}": {"value": 0.5, "interval": [0.4, 0.6]}}
        write_json(
            folder_of(directory.path, "gsm8k").result(step), {"metrics": metrics, "settings": {"num_samples": number}}
        )
    return to_markdown(build_run_report(read_run(directory, settings, state="completed")), figures="figures")


def test_steps_of_a_benchmark_that_were_measured_otherwise_are_told(tmp_path: Path) -> None:
    told = "the steps were not measured alike (num_samples)"
    mixed = report_of(tmp_path / "a", num_samples=(4, 8)).replace("\\", "")
    assert f"gsm8k: {told}" in mixed
    alike = report_of(tmp_path / "b", num_samples=(4, 4))
    assert "Benchmarks" in alike
    assert told not in alike.replace("\\", "")
