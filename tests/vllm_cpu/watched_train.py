"""`grpo_exp.train` in this process, with a look into vLLM's engine: `watched_train.py RECORD WORDS...`.

RECORD gets one JSON object a line: `engine` (how it was built, and what it samples to one fixed prompt before the first
step), then `sync` each time that new weights have been handed over.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from trl.generation.vllm_generation import VLLMGeneration
from vllm import SamplingParams

from grpo_exp.train import main

#: Weights that both sides hold under one name; vLLM joins others (q, k and v) into one.
_SHARED = ("embed_tokens.weight", "norm.weight", "o_proj.weight", "down_proj.weight", "layernorm.weight")
_RECORD = Path(sys.argv[1])
_init, _sync = VLLMGeneration._init_vllm, VLLMGeneration.sync_weights


def write(**fields: Any) -> None:
    """Add a line to the record."""
    with _RECORD.open("a") as stream:
        stream.write(json.dumps(fields) + "\n")


def engine_weights(generation: VLLMGeneration) -> dict[str, Any]:
    """Return the engine's weights that the trainer has under the same name; vLLM fills up the rows of embeddings."""
    model, own = (
        generation.llm.llm_engine.model_executor.driver_worker.model_runner.model,
        generation.model.state_dict(),
    )
    shared = {name: weight for name, weight in model.named_parameters() if name.endswith(_SHARED)}
    return {name: weight[: own[name].shape[0]] for name, weight in shared.items()}


def digest(weights: dict[str, Any]) -> str:
    """Return a hash of weights, bit for bit."""
    found = hashlib.sha256()
    for name in sorted(weights):
        found.update(weights[name].detach().float().numpy().tobytes())
    return found.hexdigest()


def init_vllm(self: VLLMGeneration) -> None:
    """Start the engine, and note how it was built and what it samples."""
    _init(self)
    config = self.llm.llm_engine.model_config
    ids = self.processing_class.apply_chat_template(
        [{"role": "user", "content": "12+7?"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    outputs = self.llm.generate(
        [{"prompt_token_ids": ids}] * 8, SamplingParams(temperature=1.0, max_tokens=16), use_tqdm=False
    )
    write(
        engine={"max_model_len": config.max_model_len, "dtype": str(config.dtype), "seed": config.seed},
        rollouts=[list(output.outputs[0].token_ids) for output in outputs],
    )


def sync_weights(self: VLLMGeneration) -> None:
    """Hand over weights, and note whether they arrived and what they replaced."""
    before = digest(engine_weights(self))
    _sync(self)
    engine, trainer = engine_weights(self), dict(self.model.named_parameters())
    differences = {name: float((weight - trainer[name]).abs().max()) for name, weight in engine.items()}
    write(sync={"before": before, "after": digest(engine), "num_weights": len(engine),
                "difference": max(differences.values())})  # fmt: skip


if __name__ == "__main__":
    VLLMGeneration._init_vllm, VLLMGeneration.sync_weights = init_vllm, sync_weights
    main(sys.argv[2:])
