"""Fine-tune on worked examples before GRPO: `grpo-exp sft GROUP=OPTION key=value ...`, the groups of `train`.

Writes a run folder like `train`; its model is what GRPO starts from with `model.prime_from=RUN_FOLDER`.
"""

from __future__ import annotations

from collections.abc import Sequence

from grpo_exp.console import build_console
from grpo_exp.runner import run
from grpo_exp.sft_run import build_sft_request, resumable


def main(words: Sequence[str]) -> int:
    """Compose, check, fine-tune, and return the exit code that the README lists."""
    request, console = build_sft_request(words, ["grpo-exp", "sft", *words]), build_console()
    return resumable(lambda: run(request, console), console)
