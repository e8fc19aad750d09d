"""Load the policy and its tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from grpo_exp.models.bundled import bundled_folder
from grpo_exp.models.hub import fetch_folder
from grpo_exp.models.pretrained import load_pretrained
from grpo_exp.models.tiny import load_tiny, load_tiny_from
from grpo_exp.settings.model import ModelSettings


def quiet_libraries() -> None:
    """Leave warnings of transformers and drop its progress bars: progress is shown by us."""
    transformers_logging.set_verbosity_warning()
    transformers_logging.disable_progress_bar()


def load_policy(
    settings: ModelSettings, *, on_priming_step: Callable[[int, float], None]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return model and tokenizer; the model without its adapter, which the trainer adds.

    Args:
        settings: Which model.
        on_priming_step: Called while the built-in policy is primed on first use.

    Raises:
        ConfigError: There is no model where the settings say, or no chat template.
    """
    if settings.prime_from is not None:
        return _load_primed(settings, Path(settings.prime_from) / "model")
    if settings.kind == "tiny":
        return load_tiny(settings, on_step=on_priming_step)
    if settings.kind == "smollm2_bundled":
        return load_pretrained(settings, bundled_folder(), name="model=smollm2_bundled")
    assert settings.path is not None  # their validators refuse a null path
    folder = fetch_folder(settings.path, settings.revision, trust_remote_code=settings.trust_remote_code)
    return load_pretrained(settings, folder, name=f"model.path={settings.path}")


def _load_primed(settings: ModelSettings, folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load what a run has trained and saved: weights, tokenizer and chat template."""
    if settings.kind == "tiny":
        return load_tiny_from(folder)
    return load_pretrained(settings, folder, name=f"model.prime_from={settings.prime_from}")
