"""Take the step of `one_step` on this rank and write down loss and gradient of all ranks together.

Started by `accelerate launch` in `test_preset_losses`: two_ranks.py OUT.pt POLICY_FOLDER PRESET...
"""

import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

from grpo_exp.backends.trl.kl_probe import KlProbe
from parity.one_step import N, Pass, build, run_twice


def main() -> None:
    """Run each preset on both ranks, with a probe; the first one writes."""
    out, policy_folder, *presets = sys.argv[1:]
    torch.set_num_threads(1)
    state = PartialState(cpu=True)
    assert state.num_processes == 2
    results = {}
    for preset in presets:
        folder = Path(out).parent / f"rank-{state.process_index}"
        share = {"rank": state.process_index, "num_processes": 2}
        trainer = build(Path(policy_folder), folder, preset, micro_batch=3, **share)
        model = trainer.accelerator.prepare_model(trainer.model)  # DDP: gradients become the mean over the ranks
        rows = slice(state.process_index * N // 2, (state.process_index + 1) * N // 2)
        trainer.kl_probe = KlProbe(trainer, completions=N, every_steps=1)
        passes = [together(one) for one in run_twice(trainer, model, rows)]
        results[preset] = {"passes": passes, "kl_from_start": trainer.kl_probe.measure()}
    if state.is_main_process:
        torch.save(results, out)


def together(one: Pass) -> dict[str, Any]:
    """Return the fields of a pass over all ranks."""
    losses = gather_object([one.loss])
    micro_batches = gather_object(list(one.micro_batches))
    return {"loss": sum(losses) / len(losses), "gradient": one.gradient, "micro_batches": micro_batches}


if __name__ == "__main__":
    main()
