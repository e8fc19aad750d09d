"""Stands in for `accelerate launch` on one of several nodes: writes down how it was called; the first one trains."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from slurm.stub_trainer import run

_WANTED = ("SLURM_PROCID", "SLURMD_NODENAME", "SLURM_STEP_NODELIST", "OMP_NUM_THREADS", "ACCELERATE_USE_CPU",
           "GRPO_EXP_VLLM_HOST", "GRPO_EXP_VLLM_PORT", "GRPO_EXP_VLLM_GROUP_PORT", "TOLD")  # fmt: skip


def main(words: list[str]) -> int:
    """Do this node's part."""
    sweep, index, *options = words[words.index("grpo_exp.joined_point") + 1 :]
    (code_file,) = (Path(word.partition("=")[2]) for word in options if word.startswith("--code-file="))
    config = json.loads(Path(words[words.index("--config_file") + 1]).read_text())
    environ = {name: os.environ[name] for name in _WANTED if name in os.environ}
    rank = int(words[words.index("--machine_rank") + 1])
    record = {"words": words, "config": config, "environ": environ}
    (Path(sweep) / f"node-{rank}.json").write_text(json.dumps(record))
    if rank == 0:
        code = run(Path(sweep), int(index))
        code_file.write_text(f"{code}\n")
        return 0 if code in {0, 3, 85} else 1
    while not code_file.exists():
        time.sleep(0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
