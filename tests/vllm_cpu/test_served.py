"""A real `vllm serve` on a CPU, started by `grpo-exp serve`: the command line is understood, and it is found fit.

New weights need NCCL and so a GPU: no run trains with it here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from grpo_exp.errors import RunError
from grpo_exp.run_lock import Lock
from grpo_exp.rundir import RunDirectory
from grpo_exp.serving.place import read_address
from grpo_exp.serving.readiness import Wanted, wait_for_server
from integration.command import run_command, wait_for

pytestmark = pytest.mark.vllm

_SHIM = Path(__file__).with_name("cpu_vllm.py")


def test_real_server_is_started_found_fit_and_ended_with_the_run(tmp_path: Path) -> None:
    model = tmp_path / "model"
    saving = (
        "import sys\n"
        "from grpo_exp.models.tiny import build_model\n"
        "from grpo_exp.models.tokenizer import build_tokenizer\n"
        "from grpo_exp.settings.model import TinyArchitecture\n"
        "shape = TinyArchitecture(hidden_size=64, num_attention_heads=2, num_key_value_heads=1)\n"
        "build_model(shape, 0).save_pretrained(sys.argv[1])\n"
        "build_tokenizer().save_pretrained(sys.argv[1])\n"
    )
    assert run_command(sys.executable, "-c", saving, str(model), cwd=tmp_path).code == 0
    words = [
        "vllm=server", "model=local", f"model.path={model}", "model.dtype=float32", "tracker=none", "name=served",
        "trainer.max_completion_length=20", "vllm.max_model_length=64", "vllm.enforce_eager=true",
        f"vllm.serve_command=[{sys.executable},{_SHIM}]", "vllm.server_timeout_seconds=400", f"output_dir={tmp_path}",
        "--host=127.0.0.1",
    ]  # fmt: skip
    log = tmp_path / "serve.log"
    with log.open("wb") as stream:
        process = subprocess.Popen([sys.executable, "-m", "grpo_exp", "serve", *words], stdout=stream, stderr=stream)
    try:
        wait_for(lambda: process.poll() is not None or bool(list(tmp_path.glob("served/*/vllm_server.json"))),
                 seconds=420, what="a server that is ready")  # fmt: skip
        assert process.poll() is None, log.read_text()[-4000:]
        (told,) = tmp_path.glob("served/*/vllm_server.json")
        directory = RunDirectory(told.parent)
        address = read_address(directory)
        assert address is not None
        url = f"http://{address[0]}:{address[1]}"
        wait_for_server(url, Wanted(str(model), 64), timeout_seconds=5)
        with pytest.raises(RunError, match="holds 64 tokens"):
            wait_for_server(url, Wanted(str(model), 65), timeout_seconds=5)
        with pytest.raises(RunError, match="another is wanted"):
            wait_for_server(url, Wanted("another"), timeout_seconds=5)
        assert _complete(url, str(model), max_tokens=4) == 4
        run = Lock(directory.lock)
        run.acquire()
        time.sleep(2)  # it looks at the run several times a second
        assert directory.server.exists()
        run.release()
        assert process.wait(timeout=60) == 0
        assert "the run has ended: ending the server" in log.read_text()
    finally:
        process.kill()
        process.wait()
    assert not directory.server.exists()


def _complete(url: str, model: str, *, max_tokens: int) -> int:
    """Return how many tokens come back for a prompt of token ids, as TRL's client asks for them."""
    payload = {"model": model, "prompt": [[5, 6, 7]], "return_token_ids": True, "max_tokens": max_tokens,
               "ignore_eos": True, "logprobs": 0}  # fmt: skip
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        return len(json.loads(answer.read())["choices"][0]["token_ids"])
