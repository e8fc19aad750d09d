"""What `grpo-exp check --deep` looks at besides what `train` does: it takes longer, and some needs the network."""

from __future__ import annotations

import http.client
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from grpo_exp import ports
from grpo_exp.data.prompts import PromptRow
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import Prepared
from grpo_exp.preflight.model_files import architecture_of
from grpo_exp.rewards.components import build_components
from grpo_exp.rewards.engine import score_components
from grpo_exp.settings.run import RunSettings

#: Rows whose gold answers go through the reward.
_NUM_GOLD = 32
#: Bytes of a float32, and how many of them AdamW keeps for each weight besides the weight itself.
_FLOAT, _ADAM_MOMENTS = 4, 2
_SECONDS = 5.0


@dataclass(slots=True)
class DeepCheck:
    """What was found."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def deep_check(settings: RunSettings, prepared: Prepared) -> DeepCheck:
    """Look at template, gold answers, room, ports and trackers."""
    found = DeepCheck()
    _check_template(settings, prepared, found)
    _check_gold(settings, prepared.data.train, found)
    _check_room(settings, found)
    _check_ports(settings, found)
    _check_trackers(settings, found)
    return found


def _check_template(settings: RunSettings, prepared: Prepared, found: DeepCheck) -> None:
    """Write the prompts as the run will, and count their tokens; a template that cannot write them is a fault."""
    from grpo_exp.models.load import load_tokenizer  # transformers, only now

    try:
        tokenizer = load_tokenizer(settings.model)
    except ConfigError as error:
        found.faults += error.faults
        return
    rows = (*prepared.data.train, *prepared.data.evaluation)
    texts = [
        str(tokenizer.apply_chat_template([dict(m) for m in row.prompt], add_generation_prompt=True, tokenize=False))
        for row in rows
    ]
    lengths = sorted(len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"])
    found.lines.append(
        f"tokens: prompts have {lengths[0]} to {lengths[-1]} tokens, template included, the middle one "
        f"{lengths[len(lengths) // 2]}; the first ends with {texts[0][-40:]!r}"
    )


def _check_gold(settings: RunSettings, rows: Sequence[PromptRow], found: DeepCheck) -> None:
    """Give right answers to the reward as a policy would write them: it must pay for them, and not for others."""
    primary = settings.reward.primary
    chosen = [row for row in rows if isinstance(row.target, str)][:_NUM_GOLD]
    if not chosen:
        found.lines.append("gold: targets are no text, so no answer can be written from them; nothing was judged")
        return
    (judge,) = [part for part in build_components(settings.reward) if part.name == primary]
    answers = [_answer(str(row.target), prefilled=settings.model.opens_reasoning) for row in chosen]
    right = _values(judge, answers, chosen)
    empty = _values(judge, [_answer("", prefilled=settings.model.opens_reasoning)] * len(chosen), chosen)
    paid = sum(value is not None and value > 0 for value in right)
    free = sum(value is not None and value > 0 for value in empty)
    found.lines.append(
        f"gold: {primary} pays for {paid} of {len(chosen)} right answers, and for {free} of {len(chosen)} empty ones"
    )
    if paid == 0:
        found.faults.append(
            f"reward.components.{primary}: pays for none of {len(chosen)} gold answers written as "
            f"{answers[0]!r}, so it would pay for nothing; choose the reward that fits the data, or correct "
            "dataset.target_format"
        )
    if free > len(chosen) / 2:
        found.faults.append(
            f"reward.components.{primary}: pays for {free} of {len(chosen)} empty answers; a policy would learn to say "
            "nothing"
        )


def _answer(text: str, *, prefilled: bool) -> str:
    """Write an answer in all the forms that the kinds of reward look for."""
    start = "" if prefilled else "<think>\n"
    if not text:
        return f"{start}\n</think>\n"
    return f"{start}{text}\n</think>\n<answer>\\boxed{{{text}}}</answer>\n#### {text}"


def _values(judge: Any, completions: Sequence[str], rows: Sequence[PromptRow]) -> list[float | None]:
    plain = [row.to_dict() for row in rows]
    columns = {
        "prompts": [row["prompt"] for row in plain],
        **{name: [row[name] for row in plain] for name in plain[0] if name != "prompt"},
        "num_tokens": [len(text) for text in completions],
    }
    return [score.value for score in score_components([judge], completions, columns)[judge.name].scores]


def _check_room(settings: RunSettings, found: DeepCheck) -> None:
    """Compare what checkpoints and the trained model take with what is free."""
    shape, trainer = architecture_of(settings.model), settings.trainer
    folder = next(p for p in (Path(settings.output_dir), *Path(settings.output_dir).parents) if p.exists())
    free = shutil.disk_usage(folder).free
    if shape is None or settings.model.lora.enabled:
        found.lines.append(f"disk: {_gib(free)} are free below {folder}; what a checkpoint takes is not known here")
        return
    weights = shape.num_parameters * _FLOAT
    checkpoint = weights * (1 + _ADAM_MOMENTS)
    kept = trainer.checkpoint.keep + 1 if trainer.checkpoint.enabled else 0  # one more while it is written
    kept += trainer.checkpoint.enabled and trainer.checkpoint.best_metric is not None
    needed = kept * checkpoint + (weights if trainer.save_model else 0)
    found.lines.append(
        f"disk: {_gib(free)} are free below {folder}; {kept} checkpoints of {_gib(checkpoint)} and the trained model "
        f"take about {_gib(needed)}"
    )
    if needed > free:
        found.faults.append(
            f"output_dir={settings.output_dir}: {_gib(free)} are free and the run writes about {_gib(needed)}; make "
            "room, lower trainer.checkpoint.keep, or choose another folder"
        )


def _gib(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"


def _check_ports(settings: RunSettings, found: DeepCheck) -> None:
    """Try the ports that are named; those that are null are looked for at the start."""
    named = {"launch.main_process_port": settings.launch.main_process_port}
    if settings.vllm.mode == "server":
        named["vllm.group_port"] = settings.vllm.group_port
    for key, port in named.items():
        if port is None:
            continue
        if ports.is_free(port):
            found.lines.append(f"port: {key}={port} is free here")
        else:
            found.faults.append(f"{key}={port}: somebody listens there already; use another, or null, which finds one")


def _check_trackers(settings: RunSettings, found: DeepCheck) -> None:
    """Ask each tracker that lies behind an address whether it answers. A run does not wait for one: only a line."""
    tracker = settings.tracker
    if tracker.mlflow is not None and (tracker.mlflow.tracking_uri or "").startswith(("http://", "https://")):
        uri = str(tracker.mlflow.tracking_uri)
        found.lines.append(f"tracker: mlflow {_ask(uri.rstrip('/') + '/health')}")
    if tracker.wandb is not None:
        from grpo_exp.tracking.wandb_tracker import resolve_mode, server_address

        mode = resolve_mode(tracker.wandb.mode)
        answer = f", {_ask(server_address().rstrip('/') + '/healthz')}" if mode == "online" else ""
        found.lines.append(f"tracker: wandb is {mode}{answer}")


def _ask(url: str) -> str:
    """Return whether a server answers, in words."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    shown = f"{parts.scheme}://{parts.hostname}{':' + str(parts.port) if parts.port else ''}"  # without a password
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS)
        connection.request("GET", parts.path)
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"{shown} does not answer ({type(error).__name__}: {error}); the run would go on and sync later"
    return f"{shown} answers with status {status}"
