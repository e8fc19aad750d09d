"""The real trainer on a policy of a few thousand random weights: batches of groups that vary, with all that is theirs.

The reward is made up so that it can be worked out again from a row alone: prompts with an even target never pay, the
others pay where the first token of the completion has an odd number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset
from transformers import PrinterCallback

from grpo_exp.backends.trl.arguments import build_arguments
from grpo_exp.backends.trl.dynamic_sampling import DynamicSamplingTrainer, SamplingRules
from grpo_exp.backends.trl.metric_names import to_metrics
from grpo_exp.backends.trl.reward_batch import RewardBatch
from grpo_exp.backends.trl.trainer import StepClock
from grpo_exp.backends.trl.training import to_dataset
from grpo_exp.data.prompts import PromptRow, build_prompt
from grpo_exp.errors import ConfigError, RunError
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.rewards.components import RewardComponent
from grpo_exp.rewards.score import Score
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.model import TinyArchitecture

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

G = 4
#: 4 prompts x 4 completions; some of 24 tokens end by themselves, so lengths differ.
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


def pays(target: str, completion_ids: Sequence[int]) -> float:
    return float(int(target) % 2 and completion_ids[0] % 2)


def varies_always(completion_ids: Sequence[int]) -> float:
    """A second component, about form: it must not make a group look alive."""
    return completion_ids[0] / 100


class Reward:
    """Counts the rows it is asked about."""

    def __init__(self) -> None:
        self.num_scored = 0

    def components(self) -> list[RewardComponent]:
        def correctness(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
            self.num_scored += len(completions)
            pairs = zip(columns["target"], columns["completion_ids"], strict=True)
            return [Score(value, "match" if value else "mismatch") for value in (pays(*pair) for pair in pairs)]

        def form(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
            return [Score(varies_always(ids), "match") for ids in columns["completion_ids"]]

        return [RewardComponent("correctness", 1.0, correctness), RewardComponent("format", 0.1, form)]


class RecordingTrainer(DynamicSamplingTrainer):
    """Notes what TRL goes on with, and every prompt that was generated for."""

    def __init__(self, **kwargs: Any) -> None:
        self.kept: list[dict[str, Any]] = []
        self.generated: list[list[Any]] = []
        self.batches: list[dict[str, Any]] = []
        super().__init__(**kwargs)

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        self.generated.append(list(prompt_ids))
        return super()._generate_single_turn(prompt_ids, *rest)

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        names = ("inputs", "prompts", "completions", "completion_ids", "rewards")
        values = (list(inputs), list(prompts), completions, completion_ids_list, rewards)
        self.kept.append(dict(zip(names, values, strict=True)))
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        batch = super()._generate_and_score_completions(inputs)
        self.batches.append(batch)
        return batch


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., RecordingTrainer]:
    torch.set_num_threads(1)

    def build_trainer(
        *words: str,
        reward: Reward | None = None,
        rows: Sequence[PromptRow] | None = None,
        trainer: type[DynamicSamplingTrainer] = RecordingTrainer,
        **changes: Any,
    ) -> Any:
        settings = load.to_settings(load.compose([*WORDS, *words]))
        sampling, plan = settings.algorithm.dynamic_sampling, solve_batch(settings)
        rows = rows or [PromptRow(build_prompt(f"{n}+1?", None), str(n + 1)) for n in range(40)]
        arguments = {
            "rules": SamplingRules(0, sampling.max_rounds, sampling.on_exhausted),
            "rewards": RewardBatch((reward or Reward()).components()),
            "primary": 0,
            "clock": StepClock(),
            "model": build_model(SHAPE, seed=3),
            "args": build_arguments(settings, plan, output_dir=tmp_path, use_cpu=True),
            "train_dataset": to_dataset(rows),
            "processing_class": build_tokenizer(),
        }
        built = trainer(**(arguments | changes))
        built.remove_callback(PrinterCallback)
        return built

    return build_trainer


def next_batches(trainer: RecordingTrainer, count: int) -> None:
    """Generate batches as the training loop asks for them, without updates between them."""
    trainer.model.train()
    loader = iter(trainer.get_train_dataloader())
    micro_steps = trainer.args.steps_per_generation
    for _ in range(count):
        batches = [next(loader) for _ in range(micro_steps)]
        trainer._generate_and_score_completions(batches[0])


def ends_of(trainer: RecordingTrainer) -> set[int]:
    """Return the last tokens of a completion that was not cut off, as TRL tells; random weights sample padding, too."""
    return {trainer.processing_class.eos_token_id, trainer.processing_class.pad_token_id}


def check_aligned(trainer: RecordingTrainer, kept: dict[str, Any], batch: dict[str, Any]) -> None:
    """Work every row out again: from its input the prompt, from its tokens text, reward and advantage."""
    tokenizer, rewards = trainer.processing_class, kept["rewards"].tolist()
    size = len(kept["inputs"])
    assert len(kept["prompts"]) == len(kept["completions"]) == len(kept["completion_ids"]) == len(rewards) == size
    for row in range(size):
        inputs, ids = kept["inputs"][row], kept["completion_ids"][row]
        number = int(inputs["target"]) - 1
        assert inputs["prompt"] == kept["prompts"][row] == [{"role": "user", "content": f"{number}+1?"}]
        text = tokenizer.decode(ids, skip_special_tokens=True)
        assert kept["completions"][row] == [{"role": "assistant", "content": text}]
        assert rewards[row] == pytest.approx([pays(inputs["target"], ids), varies_always(ids)])
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist()
        assert prompt == tokenizer.apply_chat_template(inputs["prompt"], add_generation_prompt=True)["input_ids"]
        assert batch["completion_ids"][row, : len(ids)].tolist() == ids
    totals_BG = np.array(rewards) @ np.array([1.0, 0.1])
    totals_BG = totals_BG.reshape(-1, G)
    spread_B1 = totals_BG.std(axis=1, ddof=1, keepdims=True)
    expected_BG = (totals_BG - totals_BG.mean(axis=1, keepdims=True)) / (spread_B1 + 1e-4)
    assert batch["advantages"].numpy() == pytest.approx(expected_BG.reshape(-1), abs=1e-5)


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ([], 16),  # accumulation 1
        (["trainer.per_device_train_batch_size=4"], 16),  # accumulation 4
        # accumulation 2, and 4 micro-steps from one generated batch of 8 prompts
        (["trainer.per_device_train_batch_size=8", "algorithm.updates_per_batch=2"], 32),
    ],
    ids=["accumulation 1", "accumulation 4", "two updates a batch"],
)
def test_kept_groups_vary_and_everything_stays_with_its_row(words: list[str], size: int, build: Any) -> None:
    trainer = build(*words)
    next_batches(trainer, 2)
    assert len(trainer.kept) == 2
    assert len(trainer.generated) > 2  # half of the prompts never pay, so one round was not enough
    for kept, batch in zip(trainer.kept, trainer.batches, strict=True):
        assert len(kept["prompts"]) == size
        check_aligned(trainer, kept, batch)
        correctness_BG = kept["rewards"][:, 0].view(-1, G)
        assert (correctness_BG.amax(1) - correctness_BG.amin(1) == 1).all()
        assert {int(row["target"]) % 2 for row in kept["inputs"]} == {1}
        for start in range(0, size, G):
            assert all(prompt == kept["prompts"][start] for prompt in kept["prompts"][start : start + G])
        # Overlong filtering is on in dapo: only rows that ended by themselves are in the loss.
        counted = sum(len(ids) for ids in kept["completion_ids"] if ids[-1] in ends_of(trainer))
        assert batch["num_items_in_batch"].item() == batch["completion_mask"].sum().item() == counted


def test_training_goes_through_and_its_curves_add_up(build: Any) -> None:
    """Two updates; what was generated is what was kept and what was discarded, and each row was scored once."""
    reward = Reward()
    trainer = build("trainer.per_device_train_batch_size=4", reward=reward)
    trainer.train()
    steps = [to_metrics(entry) for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == len(trainer.kept) == 2
    rounds = iter(trainer.generated)
    for metrics, kept in zip(steps, trainer.kept, strict=True):
        drawn = [next(rounds) for _ in range(int(metrics["train/dynamic_sampling/rounds"]))]
        assert len(drawn[0]) == 16
        num_generated = sum(len(prompts) for prompts in drawn)
        assert metrics["train/dynamic_sampling/discarded_completions"] == num_generated - 16
        assert metrics["train/dynamic_sampling/filled_groups"] == 0
        lengths = [len(ids) for ids in kept["completion_ids"]]
        assert metrics["train/completion_length/mean"] == pytest.approx(np.mean(lengths))
        assert metrics["train/completion_length/min"] == min(lengths)
        assert metrics["train/completion_length/max"] == max(lengths)
        cut_off = [ids[-1] not in ends_of(trainer) for ids in kept["completion_ids"]]
        assert metrics["train/completion_length/truncated_fraction"] == pytest.approx(np.mean(cut_off))
        assert metrics["train/rewards/correctness/mean"] == pytest.approx(kept["rewards"][:, 0].mean().item())
        assert metrics["train/frac_reward_zero_std"] == 0
        # Wrong completions of all rounds: at least those of the dead groups, which are wrong to the last.
        assert metrics["train/rewards/correctness/wrong"] <= num_generated
        assert metrics["train/rewards/correctness/wrong"] >= (kept["rewards"][:, 0] == 0).sum().item()
        assert "train/completion_length/min_terminated" not in metrics
    assert next(rounds, None) is None
    assert reward.num_scored == sum(len(prompts) for prompts in trainer.generated)


#: First tokens of the completions that are handed out in turn, 4 to a group: odd ones pay where the target is odd.
SCRIPT = [7, 8, 8, 8, 9, 9, 9, 9, 7, 7, 8, 8, 8, 8, 8, 8]


class ScriptedTrainer(RecordingTrainer):
    """Answers from a script: prompts 1 to 4 of a round get its groups 1 to 4; lengths 2, 3, 2, 3, ..."""

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any) -> Any:
        self.generated.append(list(prompt_ids))
        end = self.processing_class.eos_token_id
        ids = [[SCRIPT[place % 16], *[20] * (place % 2), end] for place in range(len(prompt_ids))]
        return ids, [[-token / 100 for token in row] for row in ids]


def odd_rows(count: int = 40) -> list[PromptRow]:
    """Prompts with odd targets: what the script says decides alone."""
    return [PromptRow(build_prompt(f"{2 * n}+1?", None), str(2 * n + 1)) for n in range(count)]


def test_curves_of_rounds_that_are_written_down(build: Any) -> None:
    """Groups 1 and 3 of a round of four vary.

    Round 1: 2 of 4 groups. 2 are missing, 2 / 0.5 + 1 = 5 is cut to 4: round 2 brings groups 1 and 3 again. So 8 groups
    are drawn, 4 kept, 16 completions discarded. The lengths of a group are 2, 3, 2, 3, so 10 tokens each: 40 discarded.
    In the first round 1 + 4 + 2 + 0 of 16 are right: 0.4375. Kept are groups with 1, 2, 1 and 2 of 4: 0.375. Wrong over
    both rounds: 2 x (16 - 7) = 18.
    """
    trainer = build(rows=odd_rows(), trainer=ScriptedTrainer)
    next_batches(trainer, 1)
    assert [len(prompts) for prompts in trainer.generated] == [16, 16]
    found = {name: values for name, values in trainer._metrics["train"].items() if values}
    expected = {
        "dynamic_sampling/rounds": 2.0,
        "dynamic_sampling/acceptance_rate": 0.5,
        "dynamic_sampling/discarded_completions": 16.0,
        "dynamic_sampling/discarded_tokens": 40.0,
        "dynamic_sampling/filled_groups": 0.0,
        "dynamic_sampling/rewards/correctness/mean": 0.4375,
        # 1.0 x correctness + 0.1 x format
        "dynamic_sampling/reward": 0.4375 + 0.1 * found["dynamic_sampling/rewards/format/mean"][0],
        "dynamic_sampling/completion_length/mean": 2.5,
        "dynamic_sampling/completion_length/truncated_fraction": 0.0,
        "rewards/correctness/mean": 0.375,
        "rewards/correctness/wrong": 18.0,
        "completions/mean_length": 2.5,
        "completions/clipped_ratio": 0.0,
        "completions/mean_terminated_length": 2.5,
        "frac_reward_zero_std": 0.0,
    }
    assert {name: found[name] for name in expected} == {name: [pytest.approx(v)] for name, v in expected.items()}
    (kept,) = trainer.kept
    first = [inputs["target"] for inputs in kept["inputs"]][::G]
    drawn = [trainer.processing_class.decode(prompts) for round_ in trainer.generated for prompts in round_[::G]]
    assert [f"<user>{int(target) - 1}+1?<assistant>" for target in first] == [drawn[0], drawn[2], drawn[4], drawn[6]]


def test_sampling_log_probabilities_stay_with_their_tokens(build: Any) -> None:
    """As vLLM hands them out: here -id / 100 for each token, so that they tell which token they belong to."""
    trainer = build(rows=odd_rows(), trainer=ScriptedTrainer)
    next_batches(trainer, 1)
    (batch,), (kept,) = trainer.batches, trainer.kept
    for row, ids in enumerate(kept["completion_ids"]):
        expected = torch.tensor([-token / 100 for token in ids])
        torch.testing.assert_close(batch["sampling_per_token_logps"][row, : len(ids)], expected)


# ---------------------------------------------------------------------------------------- rounds that bring nothing


def even_rows() -> list[PromptRow]:
    """Prompts that never pay."""
    return [PromptRow(build_prompt(f"{2 * n + 1}+1?", None), str(2 * n + 2)) for n in range(40)]


def test_exhausted_batch_is_filled_with_the_groups_that_came_first(build: Any) -> None:
    trainer = build("algorithm.dynamic_sampling.max_rounds=3", rows=even_rows())
    next_batches(trainer, 1)
    assert [len(prompts) for prompts in trainer.generated] == [16, 16, 16]
    (kept,), (batch,) = trainer.kept, trainer.batches
    check_aligned(trainer, kept, batch)
    shown = [batch["prompt_ids"][row][batch["prompt_mask"][row].bool()].tolist() for row in range(16)]
    assert shown == trainer.generated[0]
    metrics = trainer._metrics["train"]
    assert metrics["dynamic_sampling/filled_groups"] == [4.0]
    assert metrics["dynamic_sampling/acceptance_rate"] == [0.0]
    assert metrics["dynamic_sampling/discarded_completions"] == [32.0]


def test_exhausted_run_ends_with_what_to_do(build: Any) -> None:
    words = ["algorithm.dynamic_sampling.max_rounds=2", "algorithm.dynamic_sampling.on_exhausted=raise"]
    trainer = build(*words, rows=even_rows())
    with pytest.raises(RunError) as caught:
        next_batches(trainer, 1)
    assert str(caught.value).startswith(
        "algorithm.dynamic_sampling.max_rounds=2: after so many rounds 0 of 4 groups vary in 'correctness' (0.0% of 8)"
    )
    assert "raise max_rounds" in str(caught.value)


def test_one_round_is_the_batch_as_it_was_drawn(build: Any) -> None:
    trainer = build("algorithm.dynamic_sampling.max_rounds=1")
    next_batches(trainer, 1)
    assert len(trainer.generated) == 1
    assert trainer.sampling_state() == {"position": 0}


def test_evaluation_measures_the_prompts_it_is_given(build: Any) -> None:
    trainer = build(rows=even_rows())
    trainer.model.eval()
    inputs = [{"prompt": [{"role": "user", "content": "1+1?"}], "target": "2"}] * 8
    batch = trainer._generate_and_score_completions(inputs)
    assert len(trainer.generated) == 1
    assert batch["prompt_ids"].shape[0] == 8
    assert not any(name.startswith("dynamic_sampling") for name in trainer._metrics["eval"])


def test_more_is_drawn_than_the_data_set_holds(build: Any) -> None:
    """8 prompts, 4 in a batch, 6 rounds: 20 further ones are drawn, in the third epoch of the stream by then."""
    trainer = build("algorithm.dynamic_sampling.max_rounds=6", rows=even_rows()[:8])
    next_batches(trainer, 1)
    drawn = [tuple(ids) for prompts in trainer.generated[1:] for ids in prompts[::G]]
    assert len(drawn) == trainer.sampling_state()["position"] == 20
    assert len(set(drawn[:8])) == len(set(drawn[8:16])) == 8


# -------------------------------------------------------------------------------------------------- state and seeds


def test_restored_stream_draws_what_an_uninterrupted_run_draws(build: Any) -> None:
    """Stopped after the first of three batches; the random numbers are restored with the stream, as checkpoints do."""
    whole = build()
    whole.model.train()
    batches = iter(whole.get_train_dataloader())
    inputs = [next(batches) for _ in range(3)]
    whole._generate_and_score_completions(inputs[0])
    state, generator, rounds = whole.sampling_state(), torch.get_rng_state(), len(whole.generated)
    assert state["position"] > 0
    for given in inputs[1:]:
        whole._generate_and_score_completions(given)
    resumed = build()
    resumed.model.train()
    resumed.load_sampling_state(state)
    torch.set_rng_state(generator)
    for given in inputs[1:]:
        resumed._generate_and_score_completions(given)
    assert resumed.generated == whole.generated[rounds:]
    assert resumed.kept[-1]["completion_ids"] == whole.kept[-1]["completion_ids"]
    assert resumed.sampling_state() == whole.sampling_state()


def test_drawing_does_not_disturb_the_order_of_the_sampler(build: Any) -> None:
    """What a batch starts with is a function of the seed alone, however much was drawn in between."""
    plain, replaced = build("algorithm.dynamic_sampling.max_rounds=1"), build()
    plain.train()
    replaced.train()
    assert len(plain.generated) == 2
    assert len(replaced.generated) > 2
    assert replaced.generated[0] == plain.generated[0]
    assert plain.generated[1] in replaced.generated[1:]


def test_two_seeds_sample_differently_and_one_seed_alike(build: Any) -> None:
    """The same prompts and weights; only the seed of the run differs."""
    prompts = [[{"role": "user", "content": "1+1?"}]] * 4

    def sample(seed: int) -> list[list[int]]:
        trainer = build(f"seed={seed}")
        trainer.model.train()
        return trainer._generate(list(prompts))[1]

    samples = [sample(seed) for seed in (0, 1, 2)]
    assert samples[0] != samples[1] != samples[2] != samples[0]
    assert sample(1) == samples[1]


def test_order_of_the_prompts_is_that_of_seed_and_epoch(build: Any) -> None:
    """8 prompts, 4 a step: 2 steps an epoch. In the second epoch, and resumed there, the order is another one."""
    trainer = build("trainer.max_steps=4", "algorithm.dynamic_sampling.max_rounds=1", rows=odd_rows(8))
    trainer.train()
    decode = trainer.processing_class.decode
    steps = [[decode(ids) for ids in prompts[::G]] for prompts in trainer.generated]
    epochs = [steps[0] + steps[1], steps[2] + steps[3]]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert len(set(epochs[0])) == 8
    assert epochs[0] != epochs[1]

    resumed = build("trainer.max_steps=4", rows=odd_rows(8))
    resumed.state.global_step = 2  # as a checkpoint of step 2 or 3 leaves it when the loader is started
    loader = iter(resumed.get_train_dataloader())
    shown = [[row["prompt"][0]["content"] for row in next(loader)[::G]] for _ in range(2)]
    assert [f"<user>{text}<assistant>" for text in shown[0] + shown[1]] == epochs[1]


# ------------------------------------------------------------------------------------------------------- refusals


def test_images_are_refused(build: Any) -> None:
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "1?"}], "target": "1", "image": "a.png"}] * 8)
    with pytest.raises(ConfigError, match="this run has images, and groups can be replaced only where") as caught:
        build(train_dataset=rows)
    assert "use algorithm.dynamic_sampling.enabled=false" in str(caught.value)


def test_rollout_function_is_refused(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    with pytest.raises(ConfigError, match="this run has a rollout function"):
        build(rollout_func=lambda prompts, trainer: {})


def test_stream_of_prompts_is_refused(build: Any) -> None:
    rows = IterableDataset.from_generator(lambda: iter([{"prompt": [{"role": "user", "content": "1?"}]}]))
    with pytest.raises(ConfigError, match="further prompts are drawn by number, and this data set is a stream"):
        build(train_dataset=rows)


def test_nothing_that_cannot_be_judged_makes_a_group_alive(build: Any) -> None:
    """NaN in the judged component empties the whole row: the group counts by its other rows, here all wrong."""

    class Unjudgeable(Reward):
        def components(self) -> list[RewardComponent]:
            def correctness(name: str, completions: Sequence[Any], columns: Any) -> list[Score]:
                return [Score(None if place % G == 0 else 0.0, "no_target") for place in range(len(completions))]

            return [RewardComponent("correctness", 1.0, correctness), super().components()[1]]

    trainer = build("algorithm.dynamic_sampling.max_rounds=2", reward=Unjudgeable())
    next_batches(trainer, 1)
    assert trainer._metrics["train"]["dynamic_sampling/filled_groups"] == [4.0]
    rewards = trainer.kept[0]["rewards"]
    assert all(math.isnan(value) for value in rewards[::G].flatten().tolist())
