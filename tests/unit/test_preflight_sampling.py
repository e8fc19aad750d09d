"""Dynamic sampling and the overlong punishment before a run: what is refused, and what does nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_exp import devices
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import prepare
from grpo_exp.settings import load


@pytest.fixture(autouse=True)
def _machine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, no GPU, an empty cache: what is said must not depend on where the test runs."""
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))


def notes(*words: str) -> tuple[str, ...]:
    return prepare(load.to_settings(load.compose(["tracker=none", "dataset.train_size=64", *words]))).notes


def faults(*words: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        prepare(load.to_settings(load.compose(["tracker=none", *words])))
    return caught.value.faults


def test_metric_that_is_no_component_is_refused_with_the_names() -> None:
    assert faults("algorithm=dapo", "algorithm.dynamic_sampling.metric=accuracy") == (
        "algorithm.dynamic_sampling.metric=accuracy: is no component of the reward; use one of correctness, format, "
        "overlong, or null for reward.primary (correctness)",
    )


def test_images_are_refused(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}?", "target": "1", "image": "a.png"} for n in range(80)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["dataset=jsonl", f"dataset.path={tmp_path}/rows.jsonl", "dataset.extra_columns=[image]"]
    (fault,) = faults("algorithm=dapo", *words)
    assert fault.startswith("algorithm.dynamic_sampling.enabled=true: the column image holds images")
    assert "use algorithm.dynamic_sampling.enabled=false" in fault
    prepare(load.to_settings(load.compose(["tracker=none", "algorithm=grpo", *words])))


#: What is typed -> start of the one note.
TOLD = {
    "rounds of no sampling": (
        ["algorithm=grpo", "algorithm.dynamic_sampling.max_rounds=3"],
        "algorithm.dynamic_sampling.max_rounds=3 has no effect: groups are not replaced",
    ),
    "metric of no sampling": (
        ["algorithm=grpo", "algorithm.dynamic_sampling.metric=format"],
        "algorithm.dynamic_sampling.metric=format has no effect",
    ),
    "end of no sampling": (
        ["algorithm=grpo", "algorithm.dynamic_sampling.on_exhausted=raise"],
        "algorithm.dynamic_sampling.on_exhausted=raise has no effect",
    ),
    "one round": (
        ["algorithm=dapo", "algorithm.dynamic_sampling.max_rounds=1"],
        "algorithm.dynamic_sampling.max_rounds=1: the first round is the last one",
    ),
    "metric that is not rewarded": (
        ["algorithm=dapo", "algorithm.dynamic_sampling.metric=format", "reward.components.format.weight=0"],
        "algorithm.dynamic_sampling.metric=format: groups are chosen by a component of weight 0",
    ),
    "stretch of no punishment": (
        ["algorithm=grpo", "algorithm.overlong.cache_fraction=0.5"],
        "algorithm.overlong.cache_fraction=0.5 has no effect: there is no punishment",
    ),
    "punishment beside the user's own": (
        [
            "algorithm=dapo",
            "+reward.components.overlong={kind: overlong, max_completion_tokens: 20, cache_tokens: 10}",
        ],
        "algorithm.overlong has no effect: the reward has a component overlong of its own",
    ),
}


@pytest.mark.parametrize(("words", "start"), TOLD.values(), ids=TOLD.keys())
def test_setting_with_a_catch_is_told_in_one_line(words: list[str], start: str) -> None:
    (note,) = notes(*words)
    assert note.startswith(start)
    assert "\n" not in note
    assert ";" in note


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=dapo", "algorithm.dynamic_sampling.metric=format"],
        ["algorithm=dapo", "algorithm.dynamic_sampling.on_exhausted=raise"],
        ["algorithm=grpo", "algorithm.dynamic_sampling.enabled=true", "algorithm.dynamic_sampling.max_rounds=3"],
        ["algorithm=grpo", "algorithm.overlong.enabled=true", "algorithm.overlong.cache_fraction=0.5"],
    ],
)
def test_setting_that_acts_is_not_told(words: list[str]) -> None:
    assert notes(*words) == ()
