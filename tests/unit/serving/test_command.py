"""The command line of `vllm serve`: what the trainer needs is there, and what the run says arrives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from grpo_exp.composition import RunRequest, build_request
from grpo_exp.errors import ConfigError
from grpo_exp.provenance import settings_hash
from grpo_exp.serving.command import Replica, build_serve_command, build_serve_environment
from grpo_exp.serving.supervision import Service
from grpo_exp.settings import load
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import engine_dtype, length_fault, server_seed
from grpo_exp.vllm_package import VllmPackage

GPU_VLLM = VllmPackage("0.31.0", is_for_cpu=False)
LOCAL = ("vllm=server", "model=local", "model.path=/models/q", "trainer.max_completion_length=1024")


def settings_of(*words: str) -> RunSettings:
    return load.to_settings(load.compose([*LOCAL, *words]))


def command(*words: str, **changes: Any) -> list[str]:
    return build_serve_command(settings_of(*words), **{"host": "127.0.0.1", "port": 21, "package": GPU_VLLM, **changes})


def option(words: list[str], name: str) -> str:
    (place,) = [number for number, word in enumerate(words) if word == name]  # given once
    return words[place + 1]


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ((), "--host", "127.0.0.1"),
        ((), "--port", "21"),
        ((), "--gpu-memory-utilization", "0.9"),
        (("vllm.gpu_memory_utilization=0.5",), "--gpu-memory-utilization", "0.5"),
        ((), "--tensor-parallel-size", "1"),
        (("vllm.num_gpus=4",), "--tensor-parallel-size", "4"),
        (("vllm.num_gpus=4", "vllm.data_parallel_size=2"), "--tensor-parallel-size", "2"),
        (("vllm.num_gpus=4", "vllm.data_parallel_size=2"), "--data-parallel-size", "2"),
        (("vllm.tensor_parallel_size=8",), "--tensor-parallel-size", "8"),
        (("vllm.max_model_length=4096",), "--max-model-len", "4096"),
        (("dataset.max_prompt_length=512",), "--max-model-len", str(512 + 1024)),
        (("vllm.model_impl=transformers",), "--model-impl", "transformers"),
        (("model.revision=main",), "--revision", "main"),
        ((), "--dtype", "float32"),
        (("launch.mixed_precision=bf16",), "--dtype", "bfloat16"),
    ],
)
def test_setting_arrives(words: tuple[str, ...], name: str, value: str) -> None:
    assert option(command(*words), name) == value


def test_what_is_not_asked_for_is_not_there() -> None:
    assert not {"--max-model-len", "--revision", "--trust-remote-code", "--headless"} & set(command())
    assert "--trust-remote-code" in command("model.trust_remote_code=true")


def test_every_seed_has_a_server_that_samples_other_completions() -> None:
    seeds = [option(command(f"seed={seed}"), "--seed") for seed in (0, 1, 2)]
    assert len(set(seeds)) == 3
    assert seeds[1] == str(server_seed(settings_of("seed=1")))


def test_own_words_come_in_front_and_behind() -> None:
    words = command("vllm.serve_command=[apptainer,exec,v.sif,vllm]", "vllm.serve_options=[--enable-expert-parallel]")
    assert words[:6] == ["apptainer", "exec", "v.sif", "vllm", "serve", "/models/q"]
    assert words[-1] == "--enable-expert-parallel"
    assert command()[:5] == [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "/models/q"]


@pytest.mark.parametrize(
    ("package", "is_asked_for"),
    [(VllmPackage("0.29.3", is_for_cpu=False), False), (GPU_VLLM, True), (VllmPackage("dev", is_for_cpu=False), False),
     (None, False)],
)  # fmt: skip
def test_endpoints_for_images_are_asked_for_from_0_30_on(package: VllmPackage | None, is_asked_for: bool) -> None:
    assert ("--enable-scale-out" in command(package=package)) is is_asked_for


def test_further_nodes_are_headless_replicas() -> None:
    first, second = (command(replica=Replica(rank, 2, "n3", 22)) for rank in (0, 1))
    for words in (first, second):
        assert option(words, "--data-parallel-size") == "2"
        assert option(words, "--data-parallel-size-local") == "1"
        assert (option(words, "--data-parallel-address"), option(words, "--data-parallel-rpc-port")) == ("n3", "22")
    assert option(first, "--port") == "21"
    assert "--headless" not in first
    assert option(second, "--data-parallel-start-rank") == "1"
    assert "--port" not in second


def test_trl_asks_its_server_for_nothing_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own builder of the command, which it has deprecated: each of its words but for those of defaults."""
    from trl.scripts import vllm_serve

    monkeypatch.setattr(vllm_serve, "is_vllm_available", lambda min_version: True)
    given = vllm_serve.ScriptArguments(model="/models/q", host="127.0.0.1", port=21, dtype="float32")
    theirs = vllm_serve.build_command(given)
    # Defaults of vLLM's, which need not be said: the type of the cache, and how much uvicorn prints.
    for name in ("--kv-cache-dtype", "--uvicorn-log-level"):
        place = theirs.index(name)
        del theirs[place : place + 2]
    ours = command()
    place = ours.index("--seed")
    del ours[place : place + 2]  # TRL leaves all servers at seed 0
    assert sorted(ours) == sorted(theirs)


def test_server_takes_new_weights_in_vllms_development_mode() -> None:
    assert build_serve_environment({"A": "b"}) == {"A": "b", "VLLM_SERVER_DEV_MODE": "1"}


def test_model_that_is_built_while_the_run_starts_cannot_be_served() -> None:
    settings = load.to_settings(load.compose(["vllm=server"]))
    with pytest.raises(ConfigError, match="model=tiny: has no files for a vLLM server to load before the run"):
        build_serve_command(settings, host="h", port=1, package=None)


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        (("model=tiny", "vllm=colocate"), "float32"),
        (("model=tiny", "vllm=colocate", "launch.mixed_precision=bf16"), "bfloat16"),
        (("model.dtype=float32", "launch.mixed_precision=fp16"), "float16"),
        (("model.dtype=float16",), "float16"),
        (("model.dtype=float32", "vllm.dtype=bfloat16"), "bfloat16"),
    ],
)
def test_engine_computes_as_the_trainers_forward_pass(words: tuple[str, ...], dtype: str) -> None:
    base = [word for word in LOCAL if not (word.startswith("model") and "model=tiny" in words)]
    base = [word for word in base if not (word == "vllm=server" and "vllm=colocate" in words)]
    assert engine_dtype(load.to_settings(load.compose([*base, *words]))) == dtype


def test_length_holds_the_longest_prompt_and_its_completion() -> None:
    """200 + 1024 = 1224."""
    assert length_fault(settings_of("vllm.max_model_length=1224"), 200) is None
    fault = length_fault(settings_of("vllm.max_model_length=1223"), 200)
    assert fault is not None
    assert fault.startswith("vllm.max_model_length=1223: the longest prompt has 200 tokens")
    assert "use vllm.max_model_length=1224 or null" in fault
    assert length_fault(settings_of(), 10**6) is None  # null: it is made as long as it must be


def test_printed_command_is_the_one_that_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shlex

    from grpo_exp.commands import serve

    words = [*LOCAL, f"output_dir={tmp_path}", "vllm.server_port=21", "tracker=none", "--host=127.0.0.1", "--print"]
    assert serve.main(words) == 0
    printed = shlex.split(capsys.readouterr().out)
    settings = settings_of("vllm.server_port=21")
    assert printed == build_serve_command(settings, host="127.0.0.1", port=21, package=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("vllm.serve_command=[/no/such/vllm]", "vllm.serve_command=/no/such/vllm: is no program"),
        ("vllm.server_base_url=http://node:8000", "vllm.server_base_url=http://node:8000: the run uses"),
        ("vllm.enforce_eager=true", "vllm=server: the package vllm is not installed"),
    ],
)
def test_server_that_cannot_be_started_is_refused_before_a_folder_is_made(
    word: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo_exp.commands import serve

    monkeypatch.setattr(serve, "find_vllm", lambda: None if "eager" in word else VllmPackage("0.31.0", False))
    with pytest.raises(ConfigError) as caught:
        serve.main([*LOCAL, f"output_dir={tmp_path}", "tracker=none", word])
    (fault,) = caught.value.faults
    assert fault.startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_server_of_a_run_that_fine_tunes_first_waits_in_the_folder_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`train` makes the run's id with the folder of the fine-tuning in place of the word `sft`."""
    from grpo_exp import sft_run
    from grpo_exp.commands import serve

    words = [*LOCAL, f"output_dir={tmp_path}", "tracker=none", "dataset=gsm8k", "dataset.path=rows.jsonl",
             "dataset.eval_path=rows.jsonl", "model.prime_from=sft"]  # fmt: skip
    ran: list[RunRequest] = []

    def remember(request: RunRequest, console: Console, **_: Any) -> int:
        ran.append(request)
        return 0

    monkeypatch.setattr(sft_run, "run", remember)
    monkeypatch.setattr(sft_run, "prepare", lambda settings: None)
    sft_run.run_primed(build_request(load.compose(words), words), words, Console(quiet=True))
    tuned, grpo = ran
    assert (tuned.settings.sft is None, grpo.settings.sft is None) == (False, True)
    served: list[Service] = []
    monkeypatch.setattr(serve, "find_vllm", lambda: VllmPackage("0.31.0", False))
    monkeypatch.setattr(serve, "serve", lambda service, tell: served.append(service) or 0)
    assert serve.main(words) == 0
    (service,) = served
    assert service.settings == grpo.settings
    assert service.directory.path.name == f"{settings_hash(grpo.settings.model_dump(mode='json'))}-s0"
