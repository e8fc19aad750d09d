"""What a start finds: the checkpoint it goes on from, what stays in the run's folder, what it refuses. No training."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from grpo_exp import provenance
from grpo_exp.adoption import Adopted, adopt, finished_code
from grpo_exp.checkpoints.base_texts import texts_of
from grpo_exp.checkpoints.base_weights import fingerprint_of
from grpo_exp.checkpoints.choice import Choice
from grpo_exp.checkpoints.continuation import begin, resumed_from, store_of
from grpo_exp.checkpoints.store import CheckpointStore
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import prepare
from grpo_exp.resumption import find, named_run
from grpo_exp.rundir import RunDirectory, read_events, write_json
from grpo_exp.settings.model import ModelSettings
from grpo_exp.settings.run import RunSettings
from grpo_exp.sft_run import begun_from
from unit.resume.folder import add
from unit.run_folder import a_console, a_result, request_of, settings_of


def line(step: int) -> str:
    return json.dumps({"step": step, "time": 1.0, "metrics": {"train/loss": 0.1}}) + "\n"


def save(directory: RunDirectory, step: int, **facts: Any) -> Path:
    """Leave a checkpoint of this run behind, with its curves up to the step."""
    text = "".join(map(line, range(1, step + 1)))
    return add(store_of(directory), step, metrics=(len(text), step), **{**identity(), **facts})


@cache
def identity() -> dict[str, Any]:
    """Return what tells the checkpoints of this run from others'."""
    settings = settings_of(Path("anywhere"))
    return {
        "settings_hash": provenance.settings_hash(settings.model_dump(mode="json")),
        "seed": settings.seed,
        "dataset_fingerprint": prepare(settings).data.fingerprint(),
    }


def start(folder: Path, *words: str) -> tuple[Adopted | int, str]:
    console, out = a_console()
    return adopt(request_of(folder, *words), console), out.getvalue()


def ended(folder: Path, *steps: int, measured: int, result: dict[str, Any] | None = None) -> RunDirectory:
    """Return a run that measured some steps, saved behind some, and ended."""
    adopted, _ = start(folder)
    assert isinstance(adopted, Adopted)
    directory = adopted.directory
    with adopted.owned():
        directory.metrics.write_text("".join(map(line, range(1, measured + 1))))
        for step in steps:
            save(directory, step)
        write_json(directory.result, result or a_result(status="failed", exit_code=1, steps=measured))
    return directory


def goes_on(folder: Path, *words: str) -> tuple[int | None, str]:
    """Start again; return the step that is gone on from, and what was printed."""
    adopted, text = start(folder, *words)
    assert isinstance(adopted, Adopted)
    adopted.lock.release()
    checkpoint = resumed_from(adopted.directory)
    return None if checkpoint is None else checkpoint.step, text


# ------------------------------------------------------------------------------------------ the folder


def test_curves_are_cut_back_to_the_checkpoint_and_kept_whole_beside(tmp_path: Path) -> None:
    """4 of 5 steps were saved: the fifth is measured again, and its first measurement lies with the attempt's log."""
    directory = ended(tmp_path, 2, 4, measured=5)
    step, text = goes_on(tmp_path)
    assert step == 4
    assert (
        "resume   attempt 2 goes on from checkpoint-4; what the one before measured behind it is in logs/attempt-1"
        in text
    )
    assert directory.metrics.read_text() == "".join(map(line, range(1, 5)))
    assert (directory.log_root / "attempt-1" / "metrics.jsonl").read_text() == "".join(map(line, range(1, 6)))
    assert directory.read_result() is None
    (event,) = read_events(directory, attempt=2)
    assert (event["kind"], event["step"], event["changed"]) == ("resume", 4, {})


def test_half_a_line_behind_the_checkpoint_goes_too(tmp_path: Path) -> None:
    directory = ended(tmp_path, 4, measured=4)
    with directory.metrics.open("a") as stream:
        stream.write('{"step": 5, "ti')
    assert goes_on(tmp_path)[0] == 4
    assert directory.metrics.read_text() == "".join(map(line, range(1, 5)))


def test_benchmarks_of_models_that_stay_are_kept_when_the_run_goes_on(tmp_path: Path) -> None:
    """`grpo-exp evaluate` wrote them behind the last step; those of a step that is made again go."""
    directory = ended(tmp_path, 4, measured=5)
    kept, gone = (json.dumps({"step": step, "time": 2.0, "metrics": {"benchmark/a": 0.5}}) + "\n" for step in (4, 5))
    with directory.metrics.open("a") as stream:
        stream.write(gone + kept)
    for _ in range(2):
        assert goes_on(tmp_path)[0] == 4
        assert directory.metrics.read_text() == "".join(map(line, range(1, 5))) + kept
    assert (directory.log_root / "attempt-1" / "metrics.jsonl").read_text().endswith(gone + kept)


def test_completions_of_later_steps_and_the_last_evaluation_are_put_away(tmp_path: Path) -> None:
    directory = ended(tmp_path, 4, measured=5)
    directory.completions.mkdir()
    names = ["eval_000000.parquet", "eval_000004.parquet", "train_000004.parquet", "train_000005.parquet"]
    for name in names:
        (directory.completions / name).write_text(name)
    goes_on(tmp_path)
    assert sorted(path.name for path in directory.completions.iterdir()) == [names[0], names[2]]
    away = directory.log_root / "attempt-1" / "completions"
    assert sorted(path.name for path in away.iterdir()) == [names[1], names[3]]


def test_damaged_newest_is_told_and_set_aside(tmp_path: Path) -> None:
    directory = ended(tmp_path, 2, 4, measured=5)
    (directory.checkpoints / "checkpoint-4" / "optimizer.pt").unlink()
    step, text = goes_on(tmp_path)
    assert step == 2
    assert "skipped  checkpoint-4: optimizer.pt is missing" in text
    kinds = [(event["kind"], event["text"]) for event in read_events(directory, attempt=2)]
    assert ("checkpoint", "skipped checkpoint-4: optimizer.pt is missing") in kinds
    assert store_of(directory).steps() == [2]
    assert CheckpointStore(directory.checkpoints / "left-by-attempt-1").steps() == [4]


def test_start_that_was_killed_half_way_is_done_again(tmp_path: Path) -> None:
    """The curves were cut and the attempt began, but its files were not written."""
    directory = ended(tmp_path, 4, measured=5)
    adopted, _ = start(tmp_path)
    assert isinstance(adopted, Adopted)
    adopted.lock.release()
    (directory.log_root / "attempt-2" / "resume.json").unlink()
    assert goes_on(tmp_path)[0] == 4
    assert directory.attempt == 3
    assert directory.metrics.read_text() == "".join(map(line, range(1, 5)))


def test_without_a_complete_checkpoint_it_starts_from_the_beginning(tmp_path: Path) -> None:
    directory = ended(tmp_path, 4, measured=5)
    (directory.checkpoints / "checkpoint-4" / "complete.json").unlink()
    step, text = goes_on(tmp_path)
    assert step is None
    assert "attempt 2 starts from the beginning" in text
    assert not directory.metrics.exists()
    assert store_of(directory).steps() == []


# ------------------------------------------------------------------------------------------ settings that differ


def test_allowed_differences_are_named(tmp_path: Path) -> None:
    ended(tmp_path, 4, measured=5)
    step, text = goes_on(tmp_path, "trainer.max_steps=9", "health.again_after_steps=3", "trainer.checkpoint.keep=7")
    assert step == 4
    assert (
        "changed: health.again_after_steps=3 (was 100), trainer.checkpoint.keep=7 (was 2), trainer.max_steps=9 (was 5)"
    ) in text


def test_other_code_than_before_the_stop_is_told(tmp_path: Path) -> None:
    """Its curves would bend where it was stopped, and nothing would say why."""
    directory = ended(tmp_path, 4, measured=5)
    then = json.loads(directory.provenance.read_text())
    write_json(directory.provenance, {**then, "reward_source": "another"})
    step, text = goes_on(tmp_path)
    told = "goes on with other code than before: the source of the reward is not the one that the run had"
    assert step == 4
    assert f"warning  {told}" in text
    assert told in [event["text"] for event in read_events(directory, attempt=2) if event["kind"] == "warning"]


def test_complete_run_is_made_longer_from_its_last_checkpoint(tmp_path: Path) -> None:
    directory = ended(tmp_path, 5, measured=5, result=a_result(steps=5))
    assert start(tmp_path)[0] == 0  # as it is, it is done
    assert goes_on(tmp_path, "trainer.max_steps=7")[0] == 5
    assert json.loads((directory.log_root / "attempt-1" / "result.json").read_text())["status"] == "completed"


@pytest.mark.parametrize("result", [a_result(steps=5), a_result(status="stopped", exit_code=85, steps=5)])
def test_run_is_not_made_shorter(result: dict[str, Any], tmp_path: Path) -> None:
    directory = ended(tmp_path, 5, measured=5, result=result)
    with pytest.raises(ConfigError, match=r"trainer.max_steps=3: .* has done 5 steps; use trainer.max_steps=5 or more"):
        start(tmp_path, "trainer.max_steps=3")
    assert directory.attempt == 1
    assert not directory.lock.exists()


def test_other_data_are_refused(tmp_path: Path) -> None:
    directory = ended(tmp_path, measured=5)
    save(directory, 4, dataset_fingerprint="others")
    with pytest.raises(ConfigError, match="made on data that have changed since"):
        start(tmp_path)
    assert directory.attempt == 1


def test_other_weights_below_it_are_refused(tmp_path: Path) -> None:
    """The run it begins with was made longer since: its model/ holds other weights of the same size."""
    weights = tmp_path / "primed" / "model" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(bytes(3_000_000) + b"a")
    settings = begun_from(settings_of(tmp_path), tmp_path / "primed")
    directory, own = RunDirectory(tmp_path / "run"), provenance.settings_hash(settings.model_dump(mode="json"))
    directory.path.mkdir()
    directory.metrics.write_text("".join(map(line, range(1, 5))))
    base = fingerprint_of(settings.model)
    assert base is not None
    save(directory, 4, base_weights=base, settings_hash=own)
    found = find(directory, settings, dataset_fingerprint=identity()["dataset_fingerprint"])
    assert found.checkpoint is not None
    weights.write_bytes(bytes(3_000_000) + b"b")
    with pytest.raises(ConfigError, match=r"weights in .*/primed/model, which have changed since"):
        find(directory, settings, dataset_fingerprint=identity()["dataset_fingerprint"])


def with_template(tmp_path: Path) -> tuple[RunDirectory, RunSettings, Path]:
    """Return a run of a model in a folder with a template of one's own, that saved behind step 4."""
    model, template = tmp_path / "model", tmp_path / "mine.jinja"
    model.mkdir()
    (model / "tokenizer_config.json").write_text("{}")
    template.write_text("{{ messages[0].content }}")
    values = {"kind": "local", "path": str(model), "chat_template": str(template)}
    settings = settings_of(tmp_path)
    settings = settings.model_copy(update={"model": TypeAdapter(ModelSettings).validate_python(values)})
    directory = RunDirectory(tmp_path / "run")
    directory.path.mkdir()
    directory.metrics.write_text("".join(map(line, range(1, 5))))
    own = provenance.settings_hash(settings.model_dump(mode="json"))
    facts = {"base_texts": texts_of(settings.model), "base_weights": fingerprint_of(settings.model)}
    save(directory, 4, settings_hash=own, **facts)
    return directory, settings, template


@pytest.mark.parametrize("where", ["model.chat_template", "model.path"])
def test_another_template_is_refused(where: str, tmp_path: Path) -> None:
    """The name of its file is all that the run's id knows of it; the model's own template lies in its folder."""
    directory, settings, template = with_template(tmp_path)
    fingerprint = identity()["dataset_fingerprint"]
    found = find(directory, settings, dataset_fingerprint=fingerprint)
    assert found.checkpoint is not None
    edited = template if where == "model.chat_template" else tmp_path / "model" / "chat_template.jinja"
    edited.write_text("{{ messages[0].content }} Think.")
    with pytest.raises(ConfigError, match=rf"^{where}=/.*began with other content there.*bring it back, or .*never"):
        find(directory, settings, dataset_fingerprint=fingerprint)


def test_what_lies_beside_a_model_and_is_not_read_is_no_other_model(tmp_path: Path) -> None:
    directory, settings, _ = with_template(tmp_path)
    (tmp_path / "model" / "README.md").write_text("notes")
    assert find(directory, settings, dataset_fingerprint=identity()["dataset_fingerprint"]).checkpoint is not None


def test_complete_run_of_another_template_is_not_shown_as_this_one(tmp_path: Path) -> None:
    directory, settings, template = with_template(tmp_path)
    write_json(directory.provenance, {"base_texts": texts_of(settings.model)})
    write_json(directory.result, a_result(steps=5))
    write_json(directory.config_json, settings.model_dump(mode="json"))
    (directory.log_root / "attempt-1").mkdir(parents=True)
    console, out = a_console()
    prepared = prepare(settings_of(tmp_path))
    assert finished_code(directory, prepared, settings, console) == 0, out.getvalue()
    template.write_text("Another.")
    with pytest.raises(ConfigError, match=r"^model.chat_template=/.*is done, with other content there"):
        finished_code(directory, prepared, settings, console)


# ------------------------------------------------------------------------------------------ resume=FOLDER


def test_named_checkpoint_is_gone_back_to(tmp_path: Path) -> None:
    """The run is complete; from step 2 on it is run again, and the later checkpoint is out of the way."""
    directory = ended(tmp_path, 2, 5, measured=5, result=a_result(steps=5))
    assert goes_on(tmp_path, f"resume={directory.checkpoints / 'checkpoint-2'}")[0] == 2
    assert store_of(directory).steps() == [2]
    assert directory.metrics.read_text() == line(1) + line(2)


def test_named_run_is_gone_on_with_where_it_lies(tmp_path: Path) -> None:
    """The second run of these settings, which no other start finds."""
    ended(tmp_path, measured=1)
    beside, _ = start(tmp_path, "resume=never")
    assert isinstance(beside, Adopted)
    directory = beside.directory
    with beside.owned():
        directory.metrics.write_text("".join(map(line, range(1, 4))))
        save(directory, 3)
    again, _ = start(tmp_path, f"resume={directory.path}")
    assert isinstance(again, Adopted)
    assert again.directory.path == directory.path
    assert directory.run_id.endswith("-2")
    again.lock.release()


def test_named_run_with_other_settings_is_refused_with_their_names(tmp_path: Path) -> None:
    directory = ended(tmp_path, 4, measured=5)
    with pytest.raises(ConfigError, match=r"has other settings.*: algorithm.beta=0.5 \(was .*seed=3 \(was 0\)"):
        start(tmp_path, f"resume={directory.path}", "algorithm.beta=0.5", "seed=3")
    assert directory.attempt == 1


@pytest.mark.parametrize("names", ["run", "checkpoint"])
def test_named_run_of_an_earlier_id_is_gone_on_with(names: str, tmp_path: Path) -> None:
    """The share of vLLM was part of the hash: named, the run would begin anew, its checkpoints set aside."""
    settings = settings_of(tmp_path, "model=qwen2_5_0_5b", "vllm=colocate", "vllm.gpu_memory_utilization=0.4")
    directory = RunDirectory(tmp_path / "134fa83f-s0")
    directory.path.mkdir()
    directory.metrics.write_text("".join(map(line, range(1, 5))))
    write_json(directory.config_json, settings.model_dump(mode="json"))
    path = save(directory, 4, settings_hash="134fa83f")
    save(directory, 5, settings_hash="0000000f")  # of others
    settings = settings.model_copy(update={"resume": str(directory.path if names == "run" else path)})
    named = named_run(settings)
    assert named is not None
    found = find(named, settings, dataset_fingerprint=identity()["dataset_fingerprint"])
    assert found.checkpoint is not None
    assert found.checkpoint.step == 4


@pytest.mark.parametrize("name", ["nowhere", "checkpoints/checkpoint-9"])
def test_folder_that_is_no_run_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is neither the folder of a run nor a checkpoint-N in its checkpoints/"):
        start(tmp_path, f"resume={tmp_path / name}")


def test_named_checkpoint_that_is_damaged_is_refused_with_its_fault(tmp_path: Path) -> None:
    directory = ended(tmp_path, 2, 4, measured=5)
    (directory.checkpoints / "checkpoint-4" / "scheduler.pt").write_bytes(b"")
    (directory.checkpoints / "checkpoint-4" / "optimizer.pt").write_bytes(b"m")
    with pytest.raises(ConfigError, match=r"optimizer\.pt holds 1 bytes and 7 were written; name another checkpoint"):
        start(tmp_path, f"resume={directory.checkpoints / 'checkpoint-4'}")
    assert not directory.lock.exists()


def test_begin_is_the_first_attempt_of_a_new_run(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    assert begin(directory, Choice(None)) == 1
    assert resumed_from(directory) is None
