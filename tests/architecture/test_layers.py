"""Imports point down, and the front end stays light."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from architecture.checkout import CHECKOUT

#: Each of these costs seconds to import, or is none of the front end's business.
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "mlflow",
    "wandb",
    "tensorboard",
    "datasets",
    "accelerate",
    "peft",
    "vllm",
    "matplotlib",
}


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": ""}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def test_import_contracts_are_kept() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_front_end_checks_settings_without_heavy_imports(tmp_path: Path) -> None:
    code = """
import json, sys
import grpo_exp.train, grpo_exp.runner
from grpo_exp import preflight
from grpo_exp.settings import load
settings = load.to_settings(load.compose(["algorithm=dapo", "reward=math", "output_dir=out"]))
preflight.prepare(settings)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not HEAVY & set(json.loads(done.stdout))


def test_command_list_is_light(tmp_path: Path) -> None:
    code = """
import json, sys
import grpo_exp.__main__ as command
command._usage()
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (HEAVY - {"matplotlib"}) & set(json.loads(done.stdout))
