"""The command line of `vllm serve` for a run, whoever starts it: a person, the run itself, or a batch job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_exp.settings.model import HubModel, LocalModel
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import engine_dtype, engine_length, served_model, server_seed
from grpo_exp.vllm_package import VllmPackage, serve_program

#: What TRL's trainer depends on: weights come over NCCL, and log-probabilities are those that were sampled from, for as
#: many tokens as asked for (trl.scripts.vllm_serve.build_command; a test compares).
_OF_THE_TRAINER = (
    "--weight-transfer-config", '{"backend": "nccl"}', "--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1",
)  # fmt: skip
#: From this version on the endpoints for prompts with images have to be asked for.
_SCALE_OUT = (0, 30)


@dataclass(frozen=True, slots=True)
class Replica:
    """One node of several that serve together, each with one copy of the model."""

    rank: int
    size: int
    head_address: str
    rpc_port: int


def build_serve_command(
    settings: RunSettings, *, host: str, port: int, package: VllmPackage | None, replica: Replica | None = None
) -> list[str]:
    """Return the words that start the server of a run on this node.

    Args:
        settings: Of the run, with `vllm.mode=server`.
        host: Address to listen on; `0.0.0.0` is every one of this node.
        port: To listen on.
        package: The vLLM that will run, None where nobody knows (another environment).
        replica: Where several nodes serve together: the first one answers requests, the others are headless
            (vLLM's documentation, "Data Parallel Deployment").

    Raises:
        ConfigError: The model has no files to serve.
    """
    vllm = settings.vllm
    assert vllm.mode == "server"
    words = [*(vllm.serve_command or serve_program()), "serve", served_model(settings)]
    if replica is None or replica.rank == 0:
        words += ["--host", host, "--port", str(port)]
    else:
        words += ["--headless", "--data-parallel-start-rank", str(replica.rank)]
    words += ["--tensor-parallel-size", str(vllm.gpus_per_copy)]
    if replica is not None and replica.size > 1:
        words += [
            "--data-parallel-size", str(replica.size), "--data-parallel-size-local", "1",
            "--data-parallel-address", replica.head_address, "--data-parallel-rpc-port", str(replica.rpc_port),
        ]  # fmt: skip
    else:
        words += ["--data-parallel-size", str(vllm.data_parallel_size)]
    words += ["--gpu-memory-utilization", f"{vllm.gpu_memory_utilization:g}", "--dtype", engine_dtype(settings)]
    words += ["--model-impl", vllm.model_impl, "--seed", str(server_seed(settings))]
    length = engine_length(settings)
    if length is not None:
        words += ["--max-model-len", str(length)]
    if vllm.enforce_eager:
        words.append("--enforce-eager")
    words += _of_the_model(settings)
    if package is not None and package.is_at_least(*_SCALE_OUT):
        words.append("--enable-scale-out")
    return [*words, *_OF_THE_TRAINER, *vllm.serve_options]


def build_serve_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the server's environment: the caller's, with the endpoints that take new weights."""
    return {**environ, "VLLM_SERVER_DEV_MODE": "1"}


def _of_the_model(settings: RunSettings) -> list[str]:
    model = settings.model
    if not isinstance(model, LocalModel | HubModel):
        return []
    revision = [] if model.revision is None else ["--revision", model.revision]
    return [*revision, *(["--trust-remote-code"] if model.trust_remote_code else [])]
