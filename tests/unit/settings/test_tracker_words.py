"""Trackers are chosen by name, one, several or none, in one run as in several."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp.composition import build_request
from grpo_exp.errors import ConfigError
from grpo_exp.settings import load
from grpo_exp.settings.tracker import TrackerSettings


def chosen(*words: str) -> list[str]:
    return load.to_settings(load.compose(words)).tracker.chosen()


def fault(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load.to_settings(load.compose(words))
    [text] = caught.value.faults
    return text


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("seed=0", ["mlflow"]),
        ("tracker=wandb", ["wandb"]),
        ("tracker=[wandb,mlflow]", ["mlflow", "wandb"]),
        ("tracker=[mlflow,wandb,tensorboard]", ["mlflow", "wandb", "tensorboard"]),
        ("tracker=none", []),
        ("tracker=[none]", []),
        ("tracker.mlflow=null", []),
    ],
)
def test_the_word_chooses(word: str, names: list[str]) -> None:
    assert chosen(word) == names


def test_common_settings_are_there_whichever_are_chosen() -> None:
    for word in ("tracker=none", "tracker=tensorboard", "tracker=[mlflow,wandb]"):
        found = load.to_settings(load.compose([word, "tracker.group=g", "+tracker.tags.team=maths"])).tracker
        assert (found.group, found.tags, found.finish_timeout_seconds) == ("g", {"team": "maths"}, 30)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["tracker=[none,wandb]"], "tracker=[none,wandb]: none means no tracker at all; write tracker=none alone"),
        (["tracker=[]"], "tracker=[]: none means no tracker at all"),
        (["tracker=[mlflow,wandbb]"], "tracker=wandbb: there is no such option; did you mean tracker=wandb?"),
        (["tracker=mlflow,wandb"], "tracker=mlflow,wandb: write 'tracker=[mlflow,wandb]' for all of them, or add"),
        (["tracker.wandb.mode=offline"], "tracker.wandb: is a setting of tracker=wandb only; choose that"),
        (
            ["tracker.tags.team=a"],
            "tracker.tags.team=a: tracker.tags is empty, so a tag is added to it; write +tracker",
        ),
        (["tracker.mode=offline"], "tracker.mode: there is no such setting"),
        (["tracker.experiment=e"], "tracker.experiment: there is no such setting; did you mean tracker.mlflow.experim"),
        (["+tracker.tags.seed=a"], "tracker.tags: 'seed' is a tag that every run has by itself; choose another name"),
        (["+tracker.tags.run=1e3"], "tracker.tags.run=1000.0: text is wanted and 1000.0 was read as a float"),
        (
            ["tracker.mlflow.tracking_uri='http://[x'"],
            "tracker.mlflow.tracking_uri='http://[x': is no URI (Invalid IPv6",
        ),
        (["tracker.poll_seconds=0"], "tracker.poll_seconds=0: must be at least 0.1"),
        (["tracker.finish_timeout_seconds=0.5"], "tracker.finish_timeout_seconds=0.5: must be at least 1; use 1"),
        (["tracker=wandb", "tracker.wandb.mode=onlin"], "tracker.wandb.mode=onlin: must be one of 'auto', 'online'"),
    ],
)
def test_a_wrong_word_is_answered_with_the_fix(words: list[str], text: str) -> None:
    assert fault(*words).startswith(text)


def test_a_file_means_the_same_from_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`grpo-exp sync` may be called from another folder than the run was started in."""
    monkeypatch.chdir(tmp_path)
    words = ["tracker=[mlflow,tensorboard]", "tracker.tensorboard.directory=tb", f"output_dir={tmp_path / 'out'}"]
    uris = {
        "sqlite:///m.db": f"sqlite:///{tmp_path}/m.db",
        "sqlite:////data/m.db": "sqlite:////data/m.db",
        "mlruns": f"{tmp_path}/mlruns",
        "http://host:5000": "http://host:5000",
        "databricks": "databricks",
    }
    for given, expected in uris.items():
        overrides = [*words, f"tracker.mlflow.tracking_uri={given}"]
        found = build_request(load.compose(overrides), overrides).settings.tracker
        assert found.mlflow is not None
        assert found.mlflow.tracking_uri == expected
        assert found.tensorboard is not None
        assert found.tensorboard.directory == str(tmp_path / "tb")


def test_trackers_compose_alone() -> None:
    words = ["tracker=[mlflow,wandb]", "tracker.wandb.mode=offline"]
    assert load.load_group("tracker", TrackerSettings, words).chosen() == ["mlflow", "wandb"]
    assert load.load_group("tracker", TrackerSettings, ["tracker=none"]).chosen() == []
