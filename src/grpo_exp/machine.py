"""What a run depends on and its settings do not say: GPUs, driver, environment variables; secrets are left out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

#: Variables with these beginnings change what libraries do.
_PREFIXES = (
    "ACCELERATE_", "CUBLAS_", "CUDA_", "FSDP_", "GLOO_", "GOMP_", "GRPO_EXP_", "HF_", "HSA_", "KMP_", "MIOPEN_", "MKL_",
    "MLFLOW_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTORCH_", "ROCR_", "SLURM_", "TOKENIZERS_", "TORCH",
    "TRANSFORMERS_", "TRL_", "VLLM_", "WANDB_", "XLA_",
)  # fmt: skip
_NAMES = frozenset(
    {"CONDA_DEFAULT_ENV", "CONTAINER_IMAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "MASTER_ADDR", "MASTER_PORT",
     "PYTHONHASHSEED", "PYTHONPATH", "RANK", "VIRTUAL_ENV", "WORLD_SIZE"}
)  # fmt: skip
#: Words of a name, between underscores, that say that the value is nobody else's business.
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|APIKEY|AUTH|AUTHORIZATION|COOKIE|CREDENTIALS?|JWT|KEY|PASS|PASSPHRASE|PASSWD|PASSWORD|PAT|PWD|SECRETS?|"
    r"TOKENS?|USERNAME)(?:_|$)",
    re.IGNORECASE,
)
_PASSWORD_IN_URL = re.compile(r"(?<=://)([^\s:/@]*):[^\s/@]*@")
#: `?token=...` and the like behind an address, and `Bearer ...`.
_SECRET_IN_TEXT = re.compile(
    r"((?:[?&](?:api_?key|access_token|token|key|secret|signature|sig|password)=)|(?:\bbearer\s+))[^\s&'\"]+",
    re.IGNORECASE,
)
_QUERY_SECONDS = 10.0


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment variables that can change a run, sorted; none whose name tells of a secret.

    Args:
        variables: The environment; that of this process if it is not given.
    """
    given = os.environ if variables is None else variables
    wanted = sorted(name for name in given if name in _NAMES or name.startswith(_PREFIXES))
    return {name: without_secrets(given[name]) for name in wanted if not _SECRET_NAME.search(name)}


def without_secrets(text: str) -> str:
    """Replace passwords and tokens in addresses by `***`: `postgresql://me:***@host/db`."""
    return _SECRET_IN_TEXT.sub(r"\1***", _PASSWORD_IN_URL.sub(r"\1:***@", text))


def nvidia_gpus() -> list[dict[str, str]]:
    """Return name, memory and driver of each NVIDIA GPU as nvidia-smi tells them; empty where there is none.

    A driver that does not answer is told in an entry of its own: `{"error": ...}`.
    """
    if shutil.which("nvidia-smi") is None:
        return []
    fields = ("index", "name", "uuid", "memory.total", "driver_version")
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [{"error": f"nvidia-smi: {error}"}]
    if done.returncode:
        return [{"error": f"nvidia-smi: {(done.stderr or done.stdout).strip().partition(chr(10))[0]}"}]
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(fields, row, strict=False)) for row in rows]


def cpu_flags() -> frozenset[str]:
    """Return the instruction sets that the kernel lists for this CPU; none where it lists none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    names = ("flags", "Features")  # x86, ARM
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith(names)), "").split())
