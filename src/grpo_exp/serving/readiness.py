"""Wait until a vLLM server answers, and make sure that it is the right one, in the way that the trainer needs.

Asked are `GET /v1/models` (which model, and how long a sequence may be) and, once, `GET /server_info`, which only a
server with its development endpoints has. No proxy is asked: the server is on a node of this job.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grpo_exp.errors import RunError
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import engine_length, needed_length, served_model

_POLL_SECONDS = 2.0
_REQUEST_SECONDS = 10.0
_HEALTH_SECONDS = 5.0
_TOLD_EVERY_SECONDS = 60.0
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run needs of its server."""

    model: str
    """As the server lists it."""
    length: int | None = None
    """Longest sequence, in tokens; None where it is not known yet."""
    processed_logprobs: bool = True
    """Log-probabilities are to be those that were sampled from, for the importance correction."""


def wanted_of(settings: RunSettings) -> Wanted:
    """Return what a run needs of its server, as far as its settings tell: a prompt has at least one token."""
    vllm = settings.vllm
    assert vllm.mode == "server"
    length = engine_length(settings) or needed_length(settings, 1)
    return Wanted(served_model(settings), length, processed_logprobs=vllm.importance_sampling_correction)


class ServerWaitEndedError(RunError):
    """Nobody needs the server any more: the wait was called off."""


def wait_for_server(
    url: str,
    wanted: Wanted,
    *,
    timeout_seconds: float,
    poll_seconds: float = _POLL_SECONDS,
    tell: Callable[[str], None] = lambda text: None,
    why_over: Callable[[], str | None] = lambda: None,
) -> None:
    """Return as soon as the server answers and is the right one.

    Args:
        url: Without a path.
        wanted: What it must be.
        timeout_seconds: From now.
        poll_seconds: Between two questions.
        tell: Is told about once a minute what is waited for.
        why_over: Asked between two questions; a reason ends the wait.

    Raises:
        ServerWaitEndedError: `why_over` gave a reason.
        RunError: It is another server, or one that lacks something, or it did not answer in time.
    """
    deadline, told = time.monotonic() + timeout_seconds, time.monotonic()
    while True:
        reason = why_over()
        if reason is not None:
            raise ServerWaitEndedError(reason)
        answer, why = _ask(f"{url}/v1/models")
        entries = _entries(answer)
        if entries is not None:
            _check(url, entries, wanted)
            return
        now = time.monotonic()
        if now >= deadline:
            raise RunError(
                f"{url}: did not answer within {timeout_seconds:.3g} s ({why or 'an answer that is no list of models'})"
                "; read what vLLM printed, or raise vllm.server_timeout_seconds (under SLURM "
                "hydra.launcher.server_timeout_seconds)"
            )
        if now - told > _TOLD_EVERY_SECONDS:
            told = now
            tell(f"waiting for {url}: {why}")
        time.sleep(poll_seconds)


def server_health(url: str) -> str:
    """Return in one line what a server answers to `/health` within 5 s, or why there is no answer."""
    try:
        with _OPENER.open(f"{url}/health", timeout=_HEALTH_SECONDS) as answer:
            return f"HTTP {answer.status}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"no answer ({error})"


def _check(url: str, entries: list[dict[str, Any]], wanted: Wanted) -> None:
    """Look whether a server that answers is the one that is wanted.

    Raises:
        RunError: It is not.
    """
    served = [str(entry["id"]) for entry in entries]
    if wanted.model not in served:
        raise RunError(
            f"{url}: serves {', '.join(served) or 'nothing'} and {wanted.model} is wanted; another server listens "
            "there, or --served-model-name hides it: leave that out"
        )
    longest = next(entry.get("max_model_len") for entry in entries if entry["id"] == wanted.model)
    if wanted.length is not None and isinstance(longest, int) and longest < wanted.length:
        raise RunError(
            f"{url}: holds {longest} tokens of a sequence, and prompt and completion need {wanted.length}; start it "
            f"with --max-model-len {wanted.length} (vllm.max_model_length={wanted.length}), or lower "
            "trainer.max_completion_length"
        )
    answer, why = _ask(f"{url}/server_info?config_format=json")
    config = answer.get("vllm_config") if isinstance(answer, dict) else None
    if not isinstance(config, dict):
        raise RunError(
            f"{url}: takes no new weights, since it does not offer its development endpoints ({why or 'no vllm_config'}"
            "); start it with VLLM_SERVER_DEV_MODE=1, as grpo-exp serve does"
        )
    if config.get("weight_transfer_config") is None:
        raise RunError(
            f'{url}: takes no new weights; start it with --weight-transfer-config \'{{"backend": "nccl"}}\', as '
            "grpo-exp serve does"
        )
    mode = (config.get("model_config") or {}).get("logprobs_mode")
    if wanted.processed_logprobs and mode != "processed_logprobs":
        raise RunError(
            f"{url}: tells {mode} instead of the probabilities that it samples from, which would bias the importance "
            "correction; start it with --logprobs-mode processed_logprobs, as grpo-exp serve does, or use "
            "vllm.importance_sampling_correction=false"
        )


def _entries(answer: Any) -> list[dict[str, Any]] | None:
    """Return the models of an answer, or None where it is no list of models."""
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, list) or not all(isinstance(entry, dict) and "id" in entry for entry in data):
        return None
    return data


def _ask(address: str) -> tuple[Any, str]:
    """Return the JSON of an answer, or None and why there is none yet."""
    try:
        with _OPENER.open(address, timeout=_REQUEST_SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        return None, f"HTTP status {error.code}"
    except (OSError, ValueError, http.client.HTTPException) as error:  # refused, unreachable, slow: it is loading
        return None, str(error)
    try:
        return json.loads(body), ""
    except ValueError:
        return None, "an answer that is no JSON"
