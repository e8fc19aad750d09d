"""From settings to results of an evaluation: sample, judge, summarise, keep, and tell the run's trackers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from grpo_exp.checkpoints.sources import Source
from grpo_exp.data.benchmark import BenchmarkRows, load_benchmark
from grpo_exp.errors import DataError
from grpo_exp.evaluation.benchmark_metrics import change, group_samples, summarise
from grpo_exp.evaluation.completion_rows import TableInfo, held_out_rows
from grpo_exp.evaluation.completion_table import write_table
from grpo_exp.evaluation.held_out import HeldOutResult, evaluate_held_out
from grpo_exp.evaluation.results import NOT_MEASURED, EvaluationFolder
from grpo_exp.rewards.components import build_components
from grpo_exp.run_lock import Lock, OwnedError
from grpo_exp.rundir import RunDirectory, write_json
from grpo_exp.settings.evaluation import EvaluationSettings
from grpo_exp.settings.load import validate
from grpo_exp.tracking.metrics_log import MetricsLog, MetricsRecord, last_per_step, read_metrics
from grpo_exp.tracking.sync import sync_run


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is to be evaluated, and where the results go."""

    settings: EvaluationSettings
    data: BenchmarkRows
    sources: Sequence[Source]
    folder: EvaluationFolder
    run: RunDirectory | None
    """The run whose curves get the results; None for a model that belongs to none."""


def prepare(
    settings: EvaluationSettings, sources: Sequence[Source], folder: EvaluationFolder, run: RunDirectory | None
) -> Evaluation:
    """Read the prompts, before any model is loaded.

    Raises:
        DataError: They cannot be read or judged.
    """
    data = load_benchmark(settings.benchmark, settings.dataset, seed=settings.seed, reward=settings.reward)
    return Evaluation(settings, data, sources, folder, run)


def run_evaluation(evaluation: Evaluation, console: Console) -> dict[int, dict[str, Any]]:
    """Evaluate what has no result of these settings yet, and return the results of all, by step."""
    results: dict[int, dict[str, Any]] = {}
    for source in evaluation.sources:
        key = _key(evaluation, source)
        known = _read(evaluation.folder.result(source.step))
        if known is not None and known.get("key") == key:
            console.print(f"step {source.step}: has this result already", highlight=False)
            results[source.step] = known
            if _add_change(results):
                write_json(evaluation.folder.result(source.step), known)
            continue
        console.print(f"step {source.step}: {source.folder}", soft_wrap=True, highlight=False, markup=False)
        results[source.step] = {"key": key, **_evaluate(evaluation, source, console)}
        _add_change(results)
        write_json(evaluation.folder.result(source.step), results[source.step])
    if evaluation.run is not None and evaluation.settings.track:
        _track(evaluation.run, results, console)
    return results


def _evaluate(evaluation: Evaluation, source: Source, console: Console) -> dict[str, Any]:
    from grpo_exp.backends.sampling.engines import build_engine, choose_engine  # torch, only now
    from grpo_exp.models.load import quiet_libraries

    quiet_libraries()
    settings, rows = evaluation.settings, evaluation.data.rows
    started = time.perf_counter()
    generate = build_engine(settings, source.model, on_batch=_telling(console, len(rows) * settings.num_samples))
    components = build_components(settings.reward)
    found: HeldOutResult = evaluate_held_out(
        rows, generate, components, primary=settings.reward.primary, num_samples=settings.num_samples
    )
    _write_samples(evaluation, source, found)
    primary = settings.reward.primary
    prompts = group_samples(
        found.samples,
        num_samples=settings.num_samples,
        primary=primary,
        component=settings.reward.components[primary],
    )
    if not prompts:
        raise DataError(
            f"reward.primary={primary}: it could judge none of the {len(rows)} prompts, so there is no result; the "
            f"samples are in {evaluation.folder.samples(source.step)}; choose another reward"
        )
    return {
        "benchmark": settings.benchmark.name,
        "step": source.step,
        "model": source.folder,
        "num_samples": settings.num_samples,
        "unjudged": len(rows) - len(prompts),
        "left_out": dict(evaluation.data.dropped),
        **summarise(prompts, ks=settings.all_k, group_by=settings.benchmark.group_by, seed=settings.seed),
        "greedy_accuracy": found.summary["greedy_accuracy"],
        "greedy_accuracy_interval": found.summary["greedy_accuracy_interval"],
        "rewards": found.summary["rewards"],
        "reasons": found.summary["reasons"],
        "prompt_means": [prompt.mean for prompt in prompts],
        "engine": choose_engine(settings),
        "settings": settings.model_dump(mode="json"),
        "wall_seconds": time.perf_counter() - started,
    }


def _write_samples(evaluation: Evaluation, source: Source, found: HeldOutResult) -> None:
    reward, num_samples = evaluation.settings.reward, evaluation.settings.num_samples
    weights = {name: component.weight for name, component in reward.components.items()}
    rows = held_out_rows(found.samples, num_samples=num_samples, weights=weights, primary=reward.primary)
    write_table(evaluation.folder.samples(source.step), rows, TableInfo("eval", source.step, len(rows)))


def _telling(console: Console, total: int) -> Callable[[int], None]:
    """Return what says now and then how far sampling has come."""
    last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        if time.monotonic() - last > 30:
            last = time.monotonic()
            console.print(f"  {min(done, total)} of {total} completions", highlight=False)

    return tell


def _add_change(results: dict[int, dict[str, Any]]) -> bool:
    """Compare the newest result with the first one, prompt by prompt, so that how hard they are drops out.

    Returns:
        Whether this says something that the newest result did not hold yet.
    """
    steps = sorted(results)
    first, last = results[steps[0]], results[steps[-1]]
    if first is last or len(first["prompt_means"]) != len(last["prompt_means"]):
        return False
    found = {"since_step": first["step"], **change(first["prompt_means"], last["prompt_means"])}
    is_new = last.get("change") != found
    last["change"] = found
    return is_new


def _key(evaluation: Evaluation, source: Source) -> str:
    """Return what a result depends on, as a hash."""
    made_of = {
        "settings": evaluation.settings.model_dump(mode="json", exclude=set(NOT_MEASURED)),
        "rows": [row.to_dict() for row in evaluation.data.rows],
        "model": source.model.model_dump(mode="json"),
        "weights": _weights_of(source),
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _weights_of(source: Source) -> list[tuple[str, int, int]]:
    """Return names, sizes and times of the files of a local model."""
    if source.model.kind == "tiny":
        return []
    found = Path(source.folder).glob("*")
    files = sorted(path for path in found if path.suffix in {".safetensors", ".bin"} and path.is_file())
    return [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def _read(path: Path) -> dict[str, Any] | None:
    """Return a result that is kept; None where there is none, or a damaged one, which is measured again."""
    try:
        result = json.loads(path.read_text()) if path.is_file() else None
    except ValueError:
        return None
    return result if isinstance(result, dict) else None


def _track(run: RunDirectory, results: dict[int, dict[str, Any]], console: Console) -> None:
    """Add results to the curves of the run, from where trackers are fed; a run that goes on writes there itself.

    An attempt cuts and appends to the same file, so the run is owned for the moment that this takes.
    """
    if not _lacking(run, results):  # as ever so often: nobody is kept from starting the run
        return
    lock = Lock(run.lock)
    try:
        lock.acquire()
    except OwnedError as error:
        console.print(
            f"{error}: the results are kept in {run.path / 'evaluations'}, and its curves were left alone; repeat the "
            "command when the run has ended, which adds them without measuring again",
            soft_wrap=True, highlight=False, markup=False,
        )  # fmt: skip
        return
    try:
        lacking = _add_to_curves(run, results)
    finally:
        lock.release()
    if not lacking:
        return
    settings = validate(run.read_config())
    for outcome in sync_run(run, settings, settings.tracker):
        console.print(f"{run.path}: {outcome.tracker}: {outcome.text}", soft_wrap=True, highlight=False, markup=False)


def _add_to_curves(run: RunDirectory, results: dict[int, dict[str, Any]]) -> bool:
    """Append what the curves lack, and say whether that was anything; the run must be owned.

    Known results, too: the run was going on when they were measured, or went on since from a checkpoint behind which
    it was cut.
    """
    lacking = _lacking(run, results)
    if lacking:
        with MetricsLog(run.metrics) as log:
            for step, found in lacking.items():
                log.append(step, found, time.time())
    return bool(lacking)


def _lacking(run: RunDirectory, results: dict[int, dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Return step -> curves of the results that the run's file does not hold as they are."""
    there = {record["step"]: record["metrics"] for record in last_per_step(_records(run.metrics))}
    curves = {step: to_curves(result) for step, result in results.items()}
    return {step: found for step, found in curves.items() if not found.items() <= there.get(step, {}).items()}


def _records(path: Path) -> list[MetricsRecord]:
    return read_metrics(path) if path.exists() else []


def to_curves(result: dict[str, Any]) -> dict[str, float]:
    """Return the values of a result by the names of their curves."""
    prefix = f"benchmark/{result['benchmark']}"
    named = {f"{prefix}/{name}": metric["value"] for name, metric in result["metrics"].items()}
    named[f"{prefix}/greedy_accuracy"] = result["greedy_accuracy"]
    named[f"{prefix}/completion_length"] = result["completion_length"]["mean"]
    named[f"{prefix}/truncated_fraction"] = result["truncated_fraction"]
    for column, groups in result.get("groups", {}).items():
        for value, group in groups.items():
            name = f"mean_at_{result['num_samples']}"
            named[f"{prefix}/{column}_{value}/{name}"] = group["metrics"][name]["value"]
    return {name: value for name, value in named.items() if value is not None}
