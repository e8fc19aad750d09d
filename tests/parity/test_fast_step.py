"""The fast step has the gradient of TRL's step: for every loss type, layout of the batch, and number of processes.

Both train on the same recorded completions, which have unequal lengths, groups without variance and completions that
are left out as truncated. Each weight's gradient is compared; rows that are added up in another order round otherwise.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.fast_step_ranks import run_on_two
from parity.recorded import (
    LOSSES,
    MAX_LENGTH,
    MAX_PROMPT,
    FastRecorded,
    G,
    Kind,
    StockRecorded,
    build,
    gradient,
    make_batch,
    relative_difference,
)

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

#: Float32 keeps seven digits. Later steps start from weights that differ by rounding already, which the exponential
#: kernel of vespo makes larger.
TOLERANCE, TOLERANCE_LATER = 1e-6, 1e-5
NUM_ROWS = 16
#: Two of four groups dead, one completion at the limit; ratios on both sides of every clip.
HALF_DEAD = Kind(NUM_ROWS, dead_groups=(1, 3), off_policy=True)
#: Micro-batch size, updates per generated batch, passes over it.
SPLITS = [(2, 1, 1), (4, 1, 1), (8, 1, 1), (16, 1, 1), (4, 2, 1), (4, 1, 2), (2, 2, 2)]


class Pair:
    """Builds the two trainers of a test."""

    def __init__(self, policy: Path, output: Path) -> None:
        self._policy, self._output = policy, output

    def build(self, trainer_class: Any, words: list[str], micro_batch: int = 4) -> Any:
        given = [
            "algorithm=dapo", f"algorithm.num_generations={G}", f"trainer.prompts_per_step={NUM_ROWS // G}",
            f"trainer.max_completion_length={MAX_LENGTH}", f"trainer.per_device_train_batch_size={micro_batch}",
        ]  # fmt: skip
        return build(trainer_class, self._policy, self._output, [*given, *words])

    def both(self, words: list[str], kind: Kind, *, micro_batch: int = 4, num_steps: int = 1) -> tuple[Any, Any]:
        """Return what the two did: their gradients, losses and metrics."""
        stock = walk(self.build(StockRecorded, words, micro_batch), kind, num_steps)
        fast = walk(self.build(FastRecorded, words, micro_batch), kind, num_steps)
        return stock, fast


@pytest.fixture(scope="module")
def pair(policy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    torch.set_num_threads(1)
    return Pair(policy_folder, tmp_path_factory.mktemp("trainer"))


class Walked:
    """Gradients and losses of optimizer steps, and the metrics that were logged in them."""

    def __init__(self) -> None:
        self.gradients: list[torch.Tensor] = []
        self.losses: list[float] = []
        self.metrics: list[dict[str, list[float]]] = []
        self.num_rows_run = 0
        self.num_rows_masked = 0


def walk(trainer: Any, kind: Kind, num_steps: int) -> Walked:
    """Take optimizer steps as the training loop does, each with a plain step down the gradient."""
    walked, model, args = Walked(), trainer.model, trainer.args
    per_batch = args.per_device_train_batch_size * args.steps_per_generation
    trainer.recorded = [make_batch(model, replace(kind, num_rows=per_batch), seed=seed) for seed in range(num_steps)]
    masks = [batch["completion_mask"] for batch in trainer.recorded]
    walked.num_rows_masked = sum(int((mask.sum(dim=1) == 0).sum()) for mask in masks)
    torch.manual_seed(7)  # TRL shuffles the rows of a generated batch
    for _ in range(num_steps):
        model.zero_grad()
        walked.losses.append(0.0)
        for _ in range(args.gradient_accumulation_steps):
            inputs = trainer._prepare_inputs([])
            walked.num_rows_run += len(inputs.get("completion_ids", ()))
            loss = trainer._compute_loss(model, inputs)
            loss.backward()
            walked.losses[-1] += loss.item()
            trainer._step += 1
        walked.gradients.append(gradient(model))
        walked.metrics.append({name: list(values) for name, values in trainer._metrics["train"].items()})
        trainer._metrics["train"].clear()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
    return walked


def assert_same(stock: Walked, fast: Walked) -> None:
    differences = [relative_difference(*pair) for pair in zip(fast.gradients, stock.gradients, strict=True)]
    assert differences[0] < TOLERANCE
    assert max(differences) < TOLERANCE_LATER
    assert fast.losses == pytest.approx(stock.losses, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient_is_that_of_the_full_batch(loss: str, pair: Pair) -> None:
    """16 rows in 4 micro-batches of 4, 8 of them dead: half of the rows are run."""
    stock, fast = pair.both(LOSSES[loss], HALF_DEAD)
    assert_same(stock, fast)
    assert float(stock.gradients[0].norm()) > 1e-2
    assert (stock.num_rows_run, fast.num_rows_run) == (16, 8)


@pytest.mark.parametrize("loss", ["grpo", "dapo", "dr_grpo"])
def test_rows_are_all_run_where_a_kl_drives_them(loss: str, pair: Pair) -> None:
    """With beta 0.1 a dead row is still pulled to the reference; a truncated one has no token in the loss at all."""
    kind = replace(HALF_DEAD, reference=True, masked=True)
    stock, fast = pair.both([*LOSSES[loss], "algorithm.beta=0.1"], kind)
    assert_same(stock, fast)
    assert fast.num_rows_masked >= 1
    assert fast.num_rows_run == 16 - fast.num_rows_masked


@pytest.mark.parametrize(("micro_batch", "updates", "iterations"), [SPLITS[0], SPLITS[4], SPLITS[5]])
def test_split_of_the_batch_does_not_matter(micro_batch: int, updates: int, iterations: int, pair: Pair) -> None:
    check_split("dapo", micro_batch, updates, iterations, pair)


@pytest.mark.long
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("split", SPLITS, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_with_every_split(loss: str, split: tuple[int, int, int], beta: float, pair: Pair) -> None:
    check_split(loss, *split, pair, f"algorithm.beta={beta}", reference=beta > 0, masked=True)


def check_split(
    loss: str, micro_batch: int, updates: int, iterations: int, pair: Pair, *words: str, **kind: bool
) -> None:
    """Four optimizer steps: two generated batches, or one that is used twice and another one."""
    given = [f"algorithm.updates_per_batch={updates}", f"algorithm.num_iterations={iterations}"]
    dead = replace(HALF_DEAD, **kind)
    stock, fast = pair.both([*LOSSES[loss], *given, *words], dead, micro_batch=micro_batch, num_steps=4)
    assert_same(stock, fast)


def test_bnpo_depends_on_the_split_and_is_left_alone(pair: Pair) -> None:
    """The settings refuse it the fast step; with it its gradient would be another one."""
    from grpo_exp.settings import load
    from grpo_exp.settings.fast_step import fast_step_fault

    settings = load.to_settings(load.compose(["tracker=none", "algorithm=dapo", "algorithm.loss_type=bnpo"]))
    assert fast_step_fault(settings) is not None
    one = walk(pair.build(StockRecorded, ["algorithm.loss_type=bnpo"], 4), HALF_DEAD, 1)
    other = walk(pair.build(StockRecorded, ["algorithm.loss_type=bnpo"], 16), HALF_DEAD, 1)
    assert relative_difference(one.gradients[0], other.gradients[0]) > 1e-2


def test_importance_ratios_of_vllm_stay_beside_their_tokens(pair: Pair) -> None:
    """One ratio for each token, from a sampler that differs from the trainer."""
    results = []
    for trainer_class in (StockRecorded, FastRecorded):
        trainer = pair.build(trainer_class, LOSSES["dapo"])
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
        batch = make_batch(trainer.model, HALF_DEAD, seed=0)
        generator = torch.Generator().manual_seed(1)
        batch["importance_sampling_ratio"] = torch.rand(batch["completion_ids"].shape, generator=generator) + 0.5
        batch["sampling_per_token_logps"] = torch.zeros_like(batch["old_per_token_logps"])
        trainer.recorded = [batch]
        torch.manual_seed(7)
        for _ in range(trainer.args.gradient_accumulation_steps):
            trainer._compute_loss(trainer.model, trainer._prepare_inputs([])).backward()
            trainer._step += 1
        results.append(gradient(trainer.model))
    assert relative_difference(results[1], results[0]) < TOLERANCE


def test_step_without_any_gradient_has_zeros_and_runs_one_short_row(pair: Pair) -> None:
    """All four groups dead: AdamW goes on with its momentum, so a gradient of 0 must not become a missing one."""
    stock, fast = pair.both(LOSSES["dapo"], Kind(NUM_ROWS, dead_groups=(0, 1, 2, 3)))
    assert float(stock.gradients[0].norm()) == float(fast.gradients[0].norm()) == 0.0
    assert (stock.num_rows_run, fast.num_rows_run) == (16, 1)
    # Nothing was run that has an entropy: absent, not 0. No completion is clipped: that is known.
    assert "entropy" not in fast.metrics[0]
    assert fast.metrics[0]["clip_ratio/region_mean"] == fast.metrics[0]["clip_ratio/high_max"] == [0.0]


@pytest.mark.parametrize("loss", ["dapo", "gspo", "cispo"])
def test_clip_ratios_count_the_rows_that_are_left_out(loss: str, pair: Pair) -> None:
    """One micro-batch of all 16 rows: TRL's shares are those of the step, and ours are the same with 8 rows run."""
    stock, fast = pair.both(LOSSES[loss], HALF_DEAD, micro_batch=16)
    names = [name for name in stock.metrics[0] if "clip" in name]
    assert names
    for name in names:
        assert fast.metrics[0][name] == pytest.approx(stock.metrics[0][name], rel=1e-5)
    if loss == "dapo":
        assert stock.metrics[0]["clip_ratio/region_mean"][0] > 0


def test_metrics_do_not_depend_on_the_split(pair: Pair) -> None:
    """Entropy, KL and clip ratios of 16 rows: in one micro-batch, where TRL's mean is exact, in 4, and in 8."""
    kind, words = Kind(NUM_ROWS, off_policy=True, reference=True), [*LOSSES["dapo"], "algorithm.beta=0.1"]
    expected = walk(pair.build(StockRecorded, words, 16), kind, 1).metrics[0]
    assert {"entropy", "kl", "clip_ratio/low_min", "clip_ratio/high_max"} <= expected.keys()
    for micro_batch in (16, 4, 2):
        found = walk(pair.build(FastRecorded, words, micro_batch), kind, 1).metrics[0]
        assert found.keys() == expected.keys()
        for name, values in expected.items():
            assert found[name] == pytest.approx(values, rel=1e-5, abs=1e-7), name


def test_entropy_is_that_of_the_rows_that_are_run(pair: Pair) -> None:
    """With groups 1 and 3 dead it is the mean over the tokens of the other eight rows."""
    trainer = pair.build(StockRecorded, LOSSES["dapo"], 16)
    batch = make_batch(trainer.model, HALF_DEAD, seed=0)
    alive = batch["advantages"] != 0
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)[alive]
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)[alive]
    with torch.no_grad():
        logits = trainer.model(input_ids=ids, attention_mask=mask).logits[:, MAX_PROMPT - 1 : -1].double()
    entropies = -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
    tokens = batch["completion_mask"][alive]
    fast = walk(pair.build(FastRecorded, LOSSES["dapo"], 4), HALF_DEAD, 1)
    assert fast.metrics[0]["entropy"] == [pytest.approx(float((entropies * tokens).sum() / tokens.sum()), rel=1e-5)]


def test_passes_for_old_and_reference_policy_give_the_same_numbers_in_the_same_places(pair: Pair) -> None:
    """16 rows in chunks of 5, ordered by length inside; 0 at padding, as with TRL."""
    stock, fast = pair.build(StockRecorded, []), pair.build(FastRecorded, [])
    batch = make_batch(stock.model, replace(HALF_DEAD, masked=True), seed=3)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    widths: list[int] = []
    fast.model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    with torch.no_grad():
        theirs, their_entropies, _ = stock._get_per_token_logps_and_entropies(
            stock.model, ids, mask, MAX_LENGTH, batch_size=5, compute_entropy=True
        )
        ours, our_entropies, _ = fast._get_per_token_logps_and_entropies(
            fast.model, ids, mask, MAX_LENGTH, batch_size=5, compute_entropy=True
        )
    assert ours.shape == theirs.shape == (16, MAX_LENGTH)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(our_entropies, their_entropies, rtol=1e-5, atol=1e-6)
    assert bool((ours[batch["completion_mask"] == 0] == 0).all())
    assert len(widths) == 4  # ceil(16 / 5) passes, as without the fast step: all processes must agree
    assert sum(widths) < 0.8 * ids.numel()


def test_same_seed_gives_the_same_gradient_and_metrics_to_the_last_bit(pair: Pair) -> None:
    first, second = (walk(pair.build(FastRecorded, LOSSES["grpo"]), HALF_DEAD, 2) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.gradients, second.gradients, strict=True))
    assert first.metrics == second.metrics


def test_model_with_dropout_keeps_the_layout_of_trl(pair: Pair) -> None:
    trainer = pair.build(FastRecorded, LOSSES["dapo"])
    trainer.fast_step_fault = "a reason"
    walked = walk(trainer, HALF_DEAD, 1)
    stock = walk(pair.build(StockRecorded, LOSSES["dapo"]), HALF_DEAD, 1)
    assert walked.num_rows_run == 16
    assert torch.equal(walked.gradients[0], stock.gradients[0])


# ------------------------------------------------------------------------------------------- several processes


def on_two_processes(losses: list[str], policy: Path, folder: Path) -> dict[str, Any]:
    """Train three steps on two gloo processes, the second of which has no row with gradient in the first step."""
    run_on_two(folder / "found.json", policy, losses)
    return json.loads((folder / "found.json").read_text())


def check_two_processes(found: dict[str, Any]) -> None:
    for loss, steps in found.items():
        assert len(steps) == 3, loss
        for step in steps[:2]:
            assert step["size"] > 1e-3, loss
            assert step["difference"] < TOLERANCE, loss
        # Nobody has a row with gradient in the third step.
        assert steps[2]["size"] == steps[2]["difference"] == 0.0, loss
        # Rows run on the two processes, of 16: without rows one stand-in in each of the two micro-steps.
        assert [step["rows"] for step in steps] == [[8, 2], [16, 16], [2, 2]], loss


def test_process_without_rows_joins_every_collective(policy_folder: Path, tmp_path: Path) -> None:
    check_two_processes(on_two_processes(["dapo"], policy_folder, tmp_path))


@pytest.mark.long
def test_every_loss_on_two_processes(policy_folder: Path, tmp_path: Path) -> None:
    check_two_processes(on_two_processes([loss for loss in LOSSES if loss != "dapo"], policy_folder, tmp_path))
