"""Evaluate a run, a checkpoint or a model on a benchmark: `grpo-exp evaluate [RUN|CHECKPOINT] [benchmark=NAME] ...`.

RUN is the folder of a run, or one that holds a single run; CHECKPOINT one of its checkpoints/checkpoint-N. Without
either, model=... says what is evaluated: model=local model.path=FOLDER. Of a run, model, reward, data set, length and
temperature are its own unless they are given.

  benchmark=NAME      held_out (default: the run's held-out prompts), gsm8k, math500, aime24, aime25, amc23, minerva,
                      or jsonl with benchmark.path=FILE; with held_out, dataset=... chooses another data set
  num_samples=16      samples per prompt       k=[1,8]           of pass@k and maj@k (default: 1, 2, 4 ...)
  checkpoints=all     the policy before training, all checkpoints and the trained model as a curve; or [0,20,40]
  engine=vllm         or transformers          --cfg             print the settings and stop
Results lie in evaluations/BENCHMARK/ of the run: step_N.json, step_N.parquet (score them again with
`grpo-exp score input=FILE`), and with several checkpoints curve.csv and curve.png.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from grpo_exp.checkpoints.sources import Source, checkpoint_in, sources_of
from grpo_exp.console import build_console
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.evaluation.results import EvaluationFolder, folder_of
from grpo_exp.preflight.folders import why_not_writable
from grpo_exp.revisions import pinned_values
from grpo_exp.run_search import find_run
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.load_evaluation import load_evaluation
from grpo_exp.settings.model import location_of

_PRINT = "--cfg"


def main(words: Sequence[str]) -> int:
    """Evaluate, and print what came out.

    Raises:
        ConfigError: A word, a setting, the prompts or the model is wrong.
    """
    names = [word for word in words if "=" not in word and not word.startswith("-")]
    switches = [word for word in words if word.startswith("-")]
    if len(names) > 1 or any(word != _PRINT for word in switches):
        raise ConfigError("Usage: grpo-exp evaluate [RUN|CHECKPOINT] [GROUP=OPTION key=value ...] [--cfg]")
    overrides = [word for word in words if word not in {*names, *switches}]
    run, step = _find(names[0]) if names else (None, None)
    settings = load_evaluation(overrides, run=None if run is None else pinned_values(run))
    if _PRINT in switches:
        print(load.to_yaml(settings.model_dump(mode="json")), end="")
        return ExitCode.COMPLETED
    sources, folder = _sources(run, step, settings)
    why = why_not_writable(folder.path)
    if why is not None:
        where = f"output_dir={settings.output_dir}" if run is None else str(run.path)
        raise ConfigError(f"{where}: {why}, and the results go there; choose a folder that can be written")
    # numpy, scipy and the trackers, only where something is evaluated.
    from grpo_exp.evaluating import prepare, run_evaluation
    from grpo_exp.reporting.evaluation_view import print_results, write_curve

    console = build_console()
    results = run_evaluation(prepare(settings, sources, folder, run), console)
    print_results(console, results)
    print(folder.path)
    if len(results) > 1:
        print(write_curve(folder.curve, results))
    return ExitCode.COMPLETED


def _find(name: str) -> tuple[RunDirectory, int | None]:
    """Return the run of a folder, and the step where the folder is one of its checkpoints."""
    path = Path(name).expanduser()
    found = checkpoint_in(path.resolve())
    if found is not None and path.is_dir():
        return found
    if (path / "config.json").is_file() and not (path / "logs").is_dir():
        raise ConfigError(
            f"{path}: is a model and no run; write model=local model.path={path}, or give the folder of a run"
        )
    return find_run(path), None


def _sources(
    run: RunDirectory | None, step: int | None, settings: EvaluationSettings
) -> tuple[list[Source], EvaluationFolder]:
    name = settings.benchmark.name
    if run is not None:
        asked = settings.checkpoints if step is None else (step,)
        return sources_of(run, settings, asked), folder_of(run.path, name)
    if settings.checkpoints != "final":
        raise ConfigError(
            f"checkpoints={settings.checkpoints}: a model has none; give the folder of a run in front, or leave it out"
        )
    source = Source(0, settings.model)
    text = json.dumps(settings.model.model_dump(mode="json"), sort_keys=True)
    label = Path(location_of(settings.model) or settings.model.kind).name
    root = Path(settings.output_dir) / "models" / f"{label}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return [source], folder_of(root, name)
