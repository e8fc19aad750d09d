"""The page of a report in a real browser, and reports of large sweeps."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.evaluation.completion_table import write_table
from grpo_exp.rewards.score import Score
from grpo_exp.sweeps.manifest import SweepDirectory
from integration.browser import Browser, browser
from integration.command import run_command
from unit.reporting.report.simulated_sweep import GRID, on_disk

#: Text that would be seen, or run, if it were taken for markup.
HOSTILE = '<script>console.log("run")</script><img src="https://example.org/x.png"><b>bold</b> \\boxed{7} & more'


def accuracy(values: Mapping[str, Any], seed: int) -> float:
    return (
        0.7
        + 0.1 * (values["trainer.learning_rate"] == 1e-4)
        + 0.003 * ((seed * 7 + values["algorithm.num_generations"]) % 5)
    )


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> SweepDirectory:
    folder = tmp_path_factory.mktemp("sweep") / "sim"
    found = on_disk(folder, GRID, seeds=3, steps=12, accuracy=accuracy, states={(1, 2): "failed", (4, 0): "missing"})
    row = CompletionRow("2+5?", HOSTILE, "7", {"correctness": Score(1.0, "match")}, 1.0, 9, False, 0)
    for entry in found.read_entries():
        directory = found.run(entry)
        if directory.config_json.is_file():
            write_table(directory.completion_table("eval", 12), [row], TableInfo("eval", 12, 1))
    return found


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile") as started:
        yield started


def report(*words: str, cwd: Path) -> str:
    done = run_command(sys.executable, "-m", "grpo_exp", "report", *words, cwd=cwd)
    assert done.code == 0, done.output
    return done.output


FIGURES = """[...document.querySelectorAll('figure svg')].map(svg => {
  const box = svg.getBoundingClientRect();
  return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height};
})"""


@pytest.fixture(scope="module")
def reported(sweep: SweepDirectory) -> SweepDirectory:
    report(str(sweep.path), cwd=sweep.path)
    return sweep


@pytest.fixture(scope="module", params=["sweep", "run"])
def page(request: pytest.FixtureRequest, reported: SweepDirectory) -> Path:
    if request.param == "sweep":
        return reported.path / "report" / "index.html"
    run = reported.run(reported.read_entry(0)).path
    return Path(report(str(run), cwd=reported.path).strip())


@pytest.mark.parametrize("width", [1280, 400])
def test_page_is_whole_quiet_and_shows_its_figures(page: Path, chrome: Browser, width: int) -> None:
    chrome.open(page, width=width)
    assert chrome.requests() == [page.resolve().as_uri()]
    assert chrome.complaints() == []
    assert chrome.evaluate("document.documentElement.scrollWidth") <= width  # wide tables scroll by themselves
    assert HOSTILE in chrome.evaluate("document.body.innerText")
    assert chrome.evaluate("document.querySelectorAll('script, img, link[rel=stylesheet], iframe').length") == 0
    figures = chrome.evaluate(FIGURES)
    assert len(figures) >= 8
    for figure in figures:
        assert figure["x"] >= 0
        assert figure["x"] + figure["width"] <= width
        assert figure["width"] >= 300
        assert figure["height"] >= 150
        picture = imread(io.BytesIO(chrome.screenshot(**figure)))
        assert np.mean(picture[..., :3].min(axis=2) < 0.6) > 0.003, "nothing dark is drawn: the figure is empty"


def test_files_of_the_report_hold_what_the_page_shows(reported: SweepDirectory) -> None:
    folder = reported.path / "report"
    pictures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert pictures == {path.stem for path in (folder / "figures").glob("*.svg")}
    assert {"points", "axis_1", "interaction_1", "cost_completions", "cost_tokens"} <= pictures
    markdown = (folder / "report.md").read_text()
    for name in pictures:
        assert f"(figures/{name}.png)" in markdown
    assert (folder / "runs.csv").read_text().count("\n") == 37
    assert "failed" in (folder / "runs.csv").read_text()
    assert (folder / "comparisons.csv").read_text().count("\n") == 67  # 12 x 11 / 2 pairs
    assert "trainer.learning_rate: 0.0001 is better than 5e-05" in markdown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nothing_here"], "is neither a folder with a manifest.jsonl"),
        (["--metric=accurcy", "."], "no run has measured it; did you mean accuracy?"),
        (["--metrik=x", "."], "did you mean --metric?"),
        ([], "Usage: grpo-exp report"),
    ],
)
def test_wrong_words_are_refused(sweep: SweepDirectory, words: list[str], told: str) -> None:
    done = run_command(sys.executable, "-m", "grpo_exp", "report", *words, cwd=sweep.path)
    assert done.code == 2
    assert told in done.output


@pytest.mark.long
def test_a_thousand_runs_of_500_steps_are_reported_in_a_minute_and_two_gigabytes(tmp_path: Path) -> None:
    grid = {
        "algorithm.num_generations": (4, 8, 16, 32, 64),
        "algorithm.beta": tuple(0.001 * i for i in range(10)),
        "trainer.learning_rate": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3),
    }
    generator = np.random.default_rng(0)
    found = on_disk(tmp_path / "big", grid, seeds=4, steps=500, accuracy=lambda values, seed: generator.uniform())
    assert len(found.read_entries()) == 1000
    started = time.perf_counter()
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-m", "grpo_exp", "report", str(found.path)])
    _, status, usage = os.wait4(pid, 0)
    seconds, gigabytes = time.perf_counter() - started, usage.ru_maxrss / 2**20  # Linux counts in kilobytes
    core = usage.ru_utime + usage.ru_stime
    print(f"1,000 runs x 500 steps: {seconds:.1f} s, {core:.1f} s of a core, {gigabytes:.2f} GB")
    assert os.waitstatus_to_exitcode(status) == 0
    assert seconds < 60
    assert gigabytes < 2
