"""A name of the hub that moves between two attempts: the run goes on with the commits that it began with.

The hub is its cache on this machine, laid out as huggingface_hub and datasets do, and there is no network.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import load_file, save_file

from grpo_exp import worker
from grpo_exp.adoption import Adopted, adopt
from grpo_exp.checkpoints.continuation import store_of
from grpo_exp.composition import RunRequest
from grpo_exp.data.load import load_rows
from grpo_exp.errors import ConfigError, DataError
from grpo_exp.hub_cache import cached_commit, cached_snapshot
from grpo_exp.models.hub import fetch_folder
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.revisions import pinned, pinned_values, recorded
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from unit.random_models import CHATML, save_model
from unit.resume.small_run import StopsItself, curves, result_of, weights

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

OLD, NEW = "a" * 40, "b" * 40
WORDS = (
    "tracker=none", "launch=inline", "launch.threads_per_process=1", "reward.engine.num_workers=1", "algorithm=grpo",
    "model=hub", "model.path=org/small", "trainer.max_steps=2", "trainer.prompts_per_step=2",
    "trainer.max_completion_length=6", "trainer.eval_before=false", "trainer.eval_samples=1",
    "trainer.learning_rate=1e-3", "algorithm.num_generations=2", "dataset.eval_size=2", "dataset.train_size=6",
)  # fmt: skip


class Hub:
    """The cache of a hub that nobody reaches: commits of models and data sets, and what `main` is just now."""

    def __init__(self, folder: Path) -> None:
        self.models, self.tables = folder / "hub" / "models--org--small", folder / "datasets"

    def publish(self, commit: str, like: Path) -> None:
        """Make a commit of the model the newest one."""
        shutil.copytree(like, self.models / "snapshots" / commit, dirs_exist_ok=True)
        self.point_to(commit)

    def point_to(self, commit: str) -> None:
        (self.models / "refs").mkdir(parents=True, exist_ok=True)
        (self.models / "refs" / "main").write_text(commit)

    def publish_table(self, commit: str, *, first: int) -> None:
        """Make a commit of a data set the newest copy: ten sums from a number on."""
        import datasets

        rows = [{"question": f"{first + i}+1?", "answer": str(first + i + 1)} for i in range(10)]
        source = self.tables / f"{commit}.jsonl"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        made = datasets.load_dataset("json", data_files=str(source), split="train", cache_dir=str(self.tables / "made"))
        (arrow,) = {Path(file["filename"]) for file in made.cache_files}
        target = self.tables / "org___sums" / "default" / "0.0.0" / commit
        shutil.copytree(arrow.parent, target)
        (target / arrow.name).rename(target / "sums-train.arrow")
        info = json.loads((target / "dataset_info.json").read_text())
        info |= {"config_name": "default", "dataset_name": "sums", "builder_name": "json"}
        info["splits"]["train"]["dataset_name"] = "sums"
        (target / "dataset_info.json").write_text(json.dumps(info))
        for path in self.tables.glob("org___sums/default/0.0.0/*"):
            os.utime(path, (1e9, 2e9 if path.name == commit else 1e9))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    import datasets.config
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    monkeypatch.delenv("RANK", raising=False)
    return Hub(tmp_path)


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """Return two models of one shape: the weights of the second are others."""
    shape = architecture_of(load.to_settings(load.compose(["model=qwen2_5_0_5b", "tracker=none"])).model)
    assert shape is not None
    old, new = save_model(tmp_path / "old", shape), tmp_path / "new"
    shutil.copytree(old, new)
    tensors = load_file(new / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, new / "model.safetensors", {"format": "pt"})
    return old, new


def start(folder: Path, *words: str) -> Adopted:
    words = (*WORDS, f"output_dir={folder}", *words)
    request = RunRequest(load.to_settings(load.compose(words)), words, "")
    adopted = adopt(request, Console(quiet=True))
    assert isinstance(adopted, Adopted), adopted
    return adopted


def run(folder: Path, *words: str, stop_after: int | None = None) -> RunDirectory:
    adopted = start(folder, *words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "MainObserver", type("StopsItself", (StopsItself,), {"after": stop_after}))
        with adopted.owned():
            worker.run_worker(adopted.directory)
    return adopted.directory


def test_commit_of_a_name_is_read_from_the_cache(hub: Hub, small: tuple[Path, Path]) -> None:
    assert cached_commit("models", "org/small", None) is None
    hub.publish(OLD, small[0])
    assert cached_commit("models", "org/small", None) == OLD
    assert cached_commit("models", "org/small", OLD) == OLD
    assert cached_commit("models", "org/small", NEW) is None
    assert cached_snapshot("models", "org/small", "main") == fetch_folder("org/small", None, trust_remote_code=False)


def test_model_that_moves_is_gone_on_with_as_it_was(hub: Hub, small: tuple[Path, Path], tmp_path: Path) -> None:
    """The adapter lies on the weights of the first attempt: with those of another commit it would be another policy."""
    words = ("model/lora=on", "trainer.checkpoint.every_steps=1")
    hub.publish(OLD, small[0])
    whole = run(tmp_path / "whole", *words)
    stopped = run(tmp_path / "stopped", *words, stop_after=1)
    facts = store_of(stopped).read(1).manifest.facts
    assert recorded(stopped) == {"model.revision": OLD}
    hub.publish(NEW, small[1])
    again = run(tmp_path / "stopped", *words)
    assert result_of(again)["status"] == "completed"
    assert again.read_config()["model"]["revision"] is None  # as it was typed: the run keeps its id
    assert store_of(again).read(2).manifest.facts["settings_hash"] == facts["settings_hash"]
    assert curves(again) == curves(whole)
    assert weights(again) == weights(whole)
    beside = run(tmp_path / "stopped", *words, "resume=never")
    assert recorded(beside) == {"model.revision": NEW}
    assert curves(beside) != curves(whole)


def test_commit_that_is_gone_is_refused(hub: Hub, small: tuple[Path, Path], tmp_path: Path) -> None:
    template = tmp_path / "mine.jinja"
    template.write_text(CHATML)
    words = f"model.chat_template={template}"
    hub.publish(OLD, small[0])
    stopped = run(tmp_path, words, stop_after=1)
    assert list(store_of(stopped).read(1).manifest.facts["base_texts"]) == ["model.chat_template"]
    hub.publish(NEW, small[1])
    shutil.rmtree(hub.models / "snapshots" / OLD)
    again = run(tmp_path, words)
    result = result_of(again)
    assert (result["status"], result["exit_code"]) == ("failed", 2)
    assert f"model.path=org/small at {OLD}: cannot be had from the hub" in result["reason"]
    assert "goes on with the commit that it began with; resume=never starts another" in result["reason"]
    assert store_of(again).steps() == [1]
    assert recorded(stopped) == {"model.revision": OLD}


# ------------------------------------------------------------------------------------------ data sets

TABLE = (
    "dataset=hub", "dataset.path=org/sums", "dataset.prompt_column=question", "dataset.target_column=answer",
    "dataset.eval_size=2", "dataset.train_size=null", "model=tiny", "~model.path",
)  # fmt: skip


def table_words(folder: Path) -> list[str]:
    mine = [word for word in WORDS if not word.startswith(("model", "dataset"))]
    return [*mine, f"output_dir={folder}", *(word for word in TABLE if word != "~model.path")]


def adopted_table(folder: Path, commits: dict[str, str] | None = None) -> Adopted | int:
    words = table_words(folder)
    request = RunRequest(load.to_settings(load.compose(words)), words, "", commits=commits or {})
    return adopt(request, Console(quiet=True))


def test_data_that_move_are_refused_where_the_first_ones_cannot_be_had(hub: Hub, tmp_path: Path) -> None:
    """Without the hub `datasets` reads its newest copy, whatever revision it is asked for."""
    hub.publish_table(OLD, first=0)
    first = adopted_table(tmp_path / "out")
    assert isinstance(first, Adopted)
    first.lock.release()
    assert recorded(first.directory) == {"dataset.revision": OLD}
    again = adopted_table(tmp_path / "out")
    assert isinstance(again, Adopted)
    again.lock.release()
    hub.publish_table(NEW, first=50)
    with pytest.raises(ConfigError) as caught:
        adopted_table(tmp_path / "out")
    (fault,) = caught.value.faults
    assert fault.startswith(f"dataset.path=org/sums: commit {OLD} is wanted and the copy here is of {NEW}: without")
    assert recorded(first.directory) == {"dataset.revision": OLD}


def test_commits_for_a_new_run_are_none_for_one_that_has_begun(hub: Hub, tmp_path: Path) -> None:
    """Those of the fine-tuning in front of it, which may have been made again since."""
    hub.publish_table(OLD, first=0)
    with pytest.raises(ConfigError, match=f"commit {NEW} is wanted"):
        adopted_table(tmp_path / "out", {"dataset.revision": NEW})
    for commits in ({}, {"dataset.revision": NEW}):
        adopted = adopted_table(tmp_path / "out", commits)
        assert isinstance(adopted, Adopted)
        adopted.lock.release()
        assert recorded(adopted.directory) == {"dataset.revision": OLD}


def test_pinned_data_set_is_not_read_from_another_commit(hub: Hub, tmp_path: Path) -> None:
    hub.publish_table(OLD, first=0)
    settings = load.to_settings(load.compose([*table_words(tmp_path), f"dataset.revision={OLD}"]))
    assert load_rows(settings.dataset, seed=0).commits == {"dataset.revision": OLD}
    moved = pinned(settings, {"dataset.revision": NEW})
    with pytest.raises(DataError, match=f"commit {NEW} is wanted and the copy here is of {OLD}"):
        load_rows(moved.dataset, seed=0)


def test_evaluating_a_run_takes_its_commits(tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    values: dict[str, Any] = {"model": {"revision": None, "path": "org/small"}, "dataset": {"revision": None}}
    directory.config_json.write_text(json.dumps(values))
    assert pinned_values(directory) == values
    directory.provenance.write_text(json.dumps({"hub_commits": {"model.revision": OLD}}))
    assert pinned_values(directory)["model"] == {"revision": OLD, "path": "org/small"}
