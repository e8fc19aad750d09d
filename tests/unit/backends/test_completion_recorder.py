"""The real trainer tells the recorder: each row of a table is worked out again from what TRL went on with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PrinterCallback

from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.backends.trl.completion_recorder import CompletionRecorder
from grpo_exp.backends.trl.dynamic_sampling import DynamicSamplingTrainer, SamplingRules
from grpo_exp.backends.trl.reward_batch import RewardBatch
from grpo_exp.backends.trl.trainer import StepClock, TimedGRPOTrainer
from grpo_exp.backends.trl.training import to_dataset
from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.evaluation.completion_rows import CompletionRow, TableInfo
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.completion_tables import CompletionTables
from grpo_exp.settings.model import TinyArchitecture

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

G = 4
WORDS = [
    "algorithm=dapo", "reward=math", "tracker=none", "launch=inline", "trainer.prompts_per_step=4",
    f"algorithm.num_generations={G}", "trainer.max_completion_length=24", "algorithm.overlong.enabled=false",
    "trainer.max_steps=2",
]  # fmt: skip
SHAPE = TinyArchitecture(
    num_hidden_layers=2,
    hidden_size=16,
    intermediate_size=32,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=64,
)


def correctness(target: str, ids: Sequence[int]) -> Score:
    """Even targets never pay, those above 30 cannot be judged, the others pay where the first token is odd."""
    if int(target) > 30:
        return Score(None, "no_target")
    return Score(1.0, "match") if int(target) % 2 and ids[0] % 2 else Score(0.0, f"mismatch_{ids[0]}")


def form(ids: Sequence[int]) -> Score:
    return Score(ids[0] / 100, f"first_{ids[0]}")


def components() -> list[RewardComponent]:
    def judge(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        return [correctness(*pair) for pair in zip(columns["target"], columns["completion_ids"], strict=True)]

    def look(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
        return [form(ids) for ids in columns["completion_ids"]]

    return [RewardComponent("correctness", 1.0, judge), RewardComponent("format", 0.1, look)]


class Noting:
    """Notes texts and tokens of every completion that is generated, and the batches that TRL goes on with."""

    generated: list[list[int]]
    batches: list[Any]

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        found = super()._generate_single_turn(prompt_ids, *rest)  # type: ignore[misc]
        self.generated += found[0]
        return found

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch = super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        self.batches.append(batch)
        return batch


class PlainTrainer(Noting, TimedGRPOTrainer):
    """Every batch is kept."""


class ReplacingTrainer(Noting, DynamicSamplingTrainer):
    """Groups are replaced."""


Tables = dict[TableInfo, list[CompletionRow]]


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., tuple[Any, Tables]]:
    torch.set_num_threads(1)

    def build_trainer(*words: str, replacing: bool) -> tuple[Any, Tables]:
        settings = load.to_settings(load.compose([*WORDS, *words]))
        plan, sampling = solve_batch(settings), settings.algorithm.dynamic_sampling
        rows = [PromptRow(build_prompt(f"{n}+1?", None), str(n + 1), {"tests": [n, "x"]}) for n in range(40)]
        rules = {"rules": SamplingRules(0, sampling.max_rounds, sampling.on_exhausted)} if replacing else {}
        trainer: Any = (ReplacingTrainer if replacing else PlainTrainer)(
            **rules,
            rewards=RewardBatch(components(), ["tests"]),
            primary=0,
            clock=StepClock(),
            model=build_model(SHAPE, seed=3),
            args=build_arguments(settings, plan, output_dir=tmp_path, use_cpu=True),
            train_dataset=to_dataset(rows),
            processing_class=build_tokenizer(),
        )
        trainer.generated, trainer.batches = [], []
        trainer.remove_callback(PrinterCallback)
        tables: Tables = {}
        trainer.completions = CompletionRecorder(
            trainer,
            settings.trainer.completions,
            steps_per_batch=settings.algorithm.updates_per_batch * settings.algorithm.num_iterations,
            on_rows=tables.__setitem__,
        )
        return trainer, tables

    return build_trainer


def check_row(row: CompletionRow, ids: Sequence[int], trainer: Any) -> None:
    """Work a row out again from the tokens of its completion; its prompt tells its target."""
    tokenizer = trainer.processing_class
    assert row.completion == tokenizer.decode(ids, skip_special_tokens=True)
    assert row.prompt == f"{int(str(row.target)) - 1}+1?"
    assert row.columns == {"tests": f'[{int(str(row.target)) - 1}, "x"]'}
    judged, looked = correctness(str(row.target), ids), form(ids)
    assert row.scores == {"correctness": judged, "format": looked}
    assert row.length == len(ids)
    assert row.truncated == (ids[-1] not in {tokenizer.eos_token_id, tokenizer.pad_token_id})
    if judged.value is None:
        assert row.reward is None
    else:
        assert row.reward == pytest.approx(judged.value + 0.1 * looked.value, abs=1e-6)


@pytest.mark.parametrize("replacing", [False, True], ids=["as generated", "dynamic sampling"])
def test_rows_are_those_that_were_generated_with_all_that_is_theirs(replacing: bool, build: Any) -> None:
    trainer, tables = build("trainer.completions.max_rows=1000", replacing=replacing)
    trainer.train()
    infos = list(tables)
    assert [(info.kind, info.step) for info in infos] == [("train", 1), ("train", 2)]
    generated = iter(trainer.generated)
    for (info, rows), batch in zip(tables.items(), trainer.batches, strict=True):
        assert len(rows) == info.num_rows  # nothing is left out
        assert [row.group for row in rows] == [place // G for place in range(len(rows))]
        for row in rows:
            check_row(row, next(generated), trainer)
        kept = [row for row in rows if row.kept]
        assert len(kept) == 16
        assert [row.advantage for row in rows if not row.kept] == [None] * (len(rows) - 16)
        if not replacing:
            assert [row.advantage for row in kept] == batch["advantages"].tolist()
            assert any(row.reward is None and row.advantage == 0.0 for row in kept) == any(
                int(str(row.target)) > 30 for row in kept
            )
        else:
            # The kept rows stand in the order of their rounds, and so does the batch.
            assert [row.advantage for row in kept] == batch["advantages"].tolist()
            by_group = [[row.scores["correctness"].value for row in kept[s : s + G]] for s in range(0, 16, G)]
            assert all(max(v or 0 for v in values) > min(v or 0 for v in values) for values in by_group)
            assert len(rows) > 16
    assert next(generated, None) is None
    targets = {int(str(row.target)) for rows in tables.values() for row in rows}
    assert max(targets) > 30  # some could not be judged


def test_advantages_are_those_of_the_rewards_of_the_group(build: Any) -> None:
    """(r - mean) / (std of a sample + 1e-4) over the rows of a group that can be judged."""
    trainer, tables = build("trainer.max_steps=1", replacing=False)
    trainer.train()
    (rows,) = tables.values()
    checked = 0
    for start in range(0, 16, G):
        group = rows[start : start + G]
        rewards = [row.reward for row in group if row.reward is not None]
        if not rewards:
            assert [row.advantage for row in group] == [0.0] * G
            continue
        mean = sum(rewards) / G
        spread = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / (G - 1))
        expected = [(reward - mean) / (spread + 1e-4) for reward in rewards]
        assert [row.advantage for row in group] == pytest.approx(expected, abs=1e-4)
        checked += 1
    assert checked


def test_table_holds_whole_groups_and_a_few_that_were_replaced(build: Any) -> None:
    """Room for 4 groups of 4: one in four of them is a replaced one, the other three are trained on."""
    trainer, tables = build("trainer.completions.max_rows=19", "trainer.max_steps=1", replacing=True)
    trainer.train()
    ((info, rows),) = tables.items()
    assert info.num_rows > 16
    assert len(rows) == 16
    groups = {row.group: [one.kept for one in rows if one.group == row.group] for row in rows}
    assert sorted(groups.values()) == [[False] * G, [True] * G, [True] * G, [True] * G]
    kept_numbers = [row for row in rows if row.kept]
    advantages = trainer.batches[0]["advantages"].view(-1, G).tolist()
    for start in range(0, 12, G):  # each kept group has the advantages of one group of the batch, whole
        assert [row.advantage for row in kept_numbers[start : start + G]] in advantages


@pytest.mark.parametrize(
    ("every_steps", "steps_per_batch", "expected"),
    [
        (3, 1, [1, 3, 6, 7]),
        (None, 1, []),
        (100, 1, [1, 7]),
        (1, 1, [1, 2, 3, 4, 5, 6, 7]),
        # Batches are made for steps 1-2, 3-4, 5-6 and 7: the second one serves step 3, the third one step 6.
        (3, 2, [1, 3, 5, 7]),
        (4, 3, [1, 4, 7]),
        (100, 2, [1, 7]),
        (100, 3, [1, 7]),
        (100, 5, [1, 6]),
    ],
)
def test_first_last_and_every_nth_step_have_a_table(
    every_steps: int | None, steps_per_batch: int, expected: list[int]
) -> None:
    """Of 7 steps; each batch is named by the first step that uses it."""
    state = SimpleNamespace(global_step=0, max_steps=7)
    recorder = CompletionRecorder(
        SimpleNamespace(state=state),  # type: ignore[arg-type]
        CompletionTables(every_steps=every_steps),
        steps_per_batch=steps_per_batch,
        on_rows=lambda info, rows: None,
    )
    found = []
    for first in range(1, 8, steps_per_batch):
        state.global_step = first - 1
        found += [first] if recorder._is_due() else []
    assert found == expected


def test_batch_of_several_updates_has_one_table(build: Any) -> None:
    trainer, tables = build("algorithm.updates_per_batch=2", "trainer.max_steps=3", replacing=False)
    trainer.train()
    assert [info.step for info in tables] == [1, 3]
    assert [info.num_rows for info in tables] == [32, 32]  # 2 x 4 prompts x 4


def test_rates_are_shares_of_all_completions_that_were_generated(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of phrases, which random weights do not write: a text of an even number of characters reflects."""

    def find(text: str) -> dict[str, str]:
        return {"reflection": text[:9]} if len(text) % 2 == 0 else {}

    monkeypatch.setattr("grpo_exp.backends.trl.completion_recorder.find_behaviours", find)
    trainer, tables = build("trainer.max_steps=1", "trainer.completions.max_rows=1000", replacing=True)
    trainer.train()
    decode = trainer.processing_class.decode
    texts = [decode(ids, skip_special_tokens=True) for ids in trainer.generated]
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    assert logged["behaviours/reflection_rate"] == sum(len(text) % 2 == 0 for text in texts) / len(texts)
    assert logged["behaviours/backtracking_rate"] == 0.0
    (rows,) = tables.values()
    assert [row.behaviours for row in rows] == [find(text) for text in texts]
