"""Settings that are only known inside an allocation: where its vLLM server listens."""

from __future__ import annotations

from collections.abc import Mapping

from grpo_exp.settings.run import RunSettings

#: Variable that the batch script exports -> field of `vllm`. None of these fields is part of a run's identity.
_FIELDS = {
    "GRPO_EXP_VLLM_HOST": "server_host",
    "GRPO_EXP_VLLM_PORT": "server_port",
    "GRPO_EXP_VLLM_GROUP_PORT": "group_port",
}


def place_in_allocation(settings: RunSettings, environ: Mapping[str, str]) -> RunSettings:
    """Return settings that name the server of this allocation; unchanged outside of one and without a server."""
    given = {field: environ[variable] for variable, field in _FIELDS.items() if environ.get(variable)}
    if settings.vllm.mode != "server" or not given:
        return settings
    checked = type(settings.vllm).model_validate({**settings.vllm.model_dump(), **given})
    return settings.model_copy(update={"vllm": checked})
