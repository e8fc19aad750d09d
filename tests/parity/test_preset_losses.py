"""Loss and gradient of each preset equal its paper's equation, through the real trainer.

Everything between the completions and `.grad` is the trainer's own: rewards, advantages, old and reference passes,
shuffling, micro-batches, scaling. Log-probabilities of the equations come from a forward pass of their own, in float64.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from integration.command import run_command
from parity.equations import OBJECTIVES, PRESETS, Step
from parity.one_step import N, Pass, Policies, build, policies, run_twice, step_of

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

TOLERANCE = 1e-5
#: Completions in a micro-batch, of 12: accumulation 1, 3 and 6.
SPLITS = (12, 4, 2)
Run = Callable[[str, int], tuple[Pass, Pass]]


@pytest.fixture(scope="module")
def found(policy_folder: Path) -> Policies:
    return policies(policy_folder)


@pytest.fixture(scope="module")
def run(policy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return `run(preset, micro_batch)`, which takes the step twice and remembers what came out."""
    seen: dict[tuple[str, int], tuple[Pass, Pass]] = {}

    def passes(preset: str, micro_batch: int) -> tuple[Pass, Pass]:
        if (preset, micro_batch) not in seen:
            trainer = build(policy_folder, tmp_path_factory.mktemp("trainer"), preset, micro_batch=micro_batch)
            seen[preset, micro_batch] = run_twice(trainer, trainer.model)
        return seen[preset, micro_batch]

    return passes


def expected(
    preset: str, found: Policies, which: int, micro_batches: Sequence[Sequence[int]]
) -> tuple[Step, float, dict[str, torch.Tensor]]:
    """Return the step, and loss and gradient of its equation: the loss is the objective with its sign turned."""
    step = step_of(preset, found, which, micro_batches)
    loss = -OBJECTIVES[preset](step)
    gradients = torch.autograd.grad(loss, found.parameters[which], retain_graph=True)
    return step, loss.item(), dict(zip(found.names, gradients, strict=True))


def largest(gradient: Mapping[str, torch.Tensor]) -> float:
    return max(values.abs().max().item() for values in gradient.values())


def difference(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> float:
    """Return the largest difference of two gradients, relative to the largest number in the second."""
    assert first.keys() == second.keys()
    return largest({name: first[name].double() - second[name].double() for name in first}) / largest(second)


def check(preset: str, found: Policies, which: int, one: Pass) -> None:
    step, loss, gradient = expected(preset, found, which, one.micro_batches)
    # The advantages of a group sum to 0, so a loss can be near 0; its terms are of the size of an advantage.
    size = max(abs(loss), step.advantages_N.abs().mean().item())
    assert abs(one.loss - loss) < TOLERANCE * size
    assert largest(gradient) > 1e-3
    assert difference(one.gradient, gradient) < TOLERANCE


@pytest.mark.parametrize("which", [0, 1], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("micro_batch", SPLITS)
@pytest.mark.parametrize("preset", PRESETS)
def test_loss_and_gradient_equal_the_equation(
    preset: str, micro_batch: int, which: int, found: Policies, run: Run
) -> None:
    """1 x 12, 3 x 4 and 6 x 2 completions: one equation over all 12, whatever the split (bnpo: over its parts)."""
    check(preset, found, which, run(preset, micro_batch)[which])


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != "bnpo"])
def test_split_does_not_matter(preset: str, run: Run) -> None:
    whole = run(preset, 12)[1].gradient
    for micro_batch in SPLITS[1:]:
        assert difference(run(preset, micro_batch)[1].gradient, whole) < TOLERANCE


def test_bnpo_depends_on_the_split_by_definition(found: Policies, run: Run) -> None:
    """A short micro-batch counts as much as a long one: the mean of its tokens, not of all 65."""
    whole = run("bnpo", 12)[1].gradient
    for micro_batch in SPLITS[1:]:
        assert difference(run("bnpo", micro_batch)[1].gradient, whole) > 1e-2


# ------------------------------------------------------------------------------- that the step can tell them apart


def test_every_two_presets_differ_on_this_step(found: Policies) -> None:
    """Otherwise one preset could pass with the loss of another."""
    gradients = {preset: expected(preset, found, 1, [range(N)])[2] for preset in PRESETS}
    for i, first in enumerate(PRESETS):
        for second in PRESETS[i + 1 :]:
            assert difference(gradients[first], gradients[second]) > 1e-2, (first, second)


def test_ratios_reach_every_branch_of_the_clips(found: Policies) -> None:
    """Tokens below, inside and above 0.8 to 1.2 with advantages of both signs; some in 1.2 to 1.28, some above 5."""
    step = step_of("grpo", found, 1, [])
    ratios, is_token = step.ratios_NT.detach(), step.mask_NT > 0
    for sign in (-1, 1):
        signed = is_token & (torch.sign(step.advantages_N)[:, None] == sign)
        for low, high in ((0.0, 0.8), (0.8, 1.2), (1.2, 100.0)):
            assert (signed & (ratios > low) & (ratios < high)).any(), (sign, low, high)
    assert (is_token & (step.advantages_N.abs() > 0.1)[:, None] & (ratios > 5)).any()
    positive = is_token & (step.advantages_N > 0)[:, None]
    assert (positive & (ratios > 1.2) & (ratios < 1.28)).any()


def test_sequences_are_clipped_on_both_sides(found: Policies) -> None:
    """GSPO and LUSPO: some rows keep their gradient and some lose it, by the sign of advantage and of log s."""
    step = step_of("gspo", found, 1, [])
    lost = (step.advantages_N > 0) & (step.sequence_ratios_N > 1.0025)
    lost |= (step.advantages_N < 0) & (step.sequence_ratios_N < 0.998)
    alive = step.advantages_N.abs() > 1e-3
    assert 0 < lost.sum() < alive.sum()


def test_step_has_a_dead_group_and_a_kl(found: Policies) -> None:
    step = step_of("grpo", found, 1, [])
    assert step.advantages_N[4:8].abs().max() < 1e-9
    assert step.advantages_N[:4].abs().min() > 0.1
    assert (step.k3_NT * step.mask_NT).sum() / step.mask_NT.sum() > 0.1


# ----------------------------------------------------------------------------------------------- two processes


def run_on_two_ranks(presets: Sequence[str], policy_folder: Path, folder: Path) -> dict[str, Any]:
    out = folder / "passes.pt"
    path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = run_command(
        sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
        "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
        str(Path(__file__).with_name("two_ranks.py")), str(out), str(policy_folder), *presets,
        cwd=folder,
        env={"ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)},
    )  # fmt: skip
    assert done.code == 0, done.output
    return torch.load(out)


def check_two_ranks(presets: Sequence[str], found: Policies, policy_folder: Path, folder: Path) -> None:
    """6 completions on each rank, so that the second of the three groups lies on both; micro-batches of 3."""
    results = run_on_two_ranks(presets, policy_folder, folder)
    assert list(results) == list(presets)
    for preset, result in results.items():
        for which, one in enumerate(result["passes"]):
            assert [len(rows) for rows in one["micro_batches"]] == [3, 3, 3, 3]
            check(preset, found, which, Pass(**one))
        assert result["kl_from_start"] == pytest.approx(kl_from_start(found), rel=1e-5)


def kl_from_start(found: Policies) -> float:
    """Return the k3 estimate over all 65 tokens: r - 1 - log r, r = policy after the move / policy that sampled."""
    step = step_of("grpo", found, 1, [])
    log_ratio = (step.log_policy_NT - step.log_old_NT).detach()[step.mask_NT > 0]
    assert len(log_ratio) == 65
    return (torch.exp(log_ratio) - 1 - log_ratio).mean().item()


@pytest.mark.long
def test_two_ranks_give_the_gradient_of_one_for_every_preset(
    found: Policies, policy_folder: Path, tmp_path: Path
) -> None:
    check_two_ranks(PRESETS, found, policy_folder, tmp_path)
