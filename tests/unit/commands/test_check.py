"""`grpo-exp check`: each fault is named, shipped recipes have none, torch stays out, and the answer comes at once."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_exp import devices, paths
from grpo_exp.check_words import sort_words
from grpo_exp.commands import check
from grpo_exp.data.pass_rates import write_pass_rates
from grpo_exp.errors import ConfigError
from grpo_exp.preflight import prepare
from grpo_exp.settings import load

REAL = ("model=qwen2_5_1_5b", "dataset=gsm8k", "launch.gpu=H100-80GB")

#: Twenty broken configurations, and what the fault must name.
BROKEN = {
    "option": (["algorithm=dappo"], "dapo"),
    "key": (["trainer.max_step=5"], "trainer.max_steps"),
    "type": (["trainer.max_steps=many"], "trainer.max_steps"),
    "range": (["algorithm.temperature=-1"], "algorithm.temperature"),
    "choice": (["algorithm.loss_type=dappo"], "algorithm.loss_type"),
    "clips": (["algorithm.epsilon=0.3", "algorithm.epsilon_high=0.1"], "algorithm.epsilon_high"),
    "one completion": (["algorithm.num_generations=1"], "algorithm.num_generations"),
    "micro-batch": (["trainer.per_device_train_batch_size=7"], "trainer.per_device_train_batch_size"),
    "processes": (["launch=ddp", "launch.num_processes=3"], "launch.num_processes"),
    "two batch sizes": (["trainer.completions_per_step=64"], "trainer.completions_per_step"),
    "too few prompts": (["dataset.train_size=8"], "trainer.prompts_per_step"),
    "context": (["trainer.max_completion_length=512"], "trainer.max_completion_length"),
    "primary": (["reward.primary=corectness"], "reward.primary"),
    "dynamic metric": (["algorithm=dapo", "algorithm.dynamic_sampling.metric=x"], "algorithm.dynamic_sampling.metric"),
    "extra": (["+trainer.extra.learning_rate=1e-6"], "trainer.learning_rate"),
    "no model": (["model=local"], "model.path"),
    "no file": (["dataset=jsonl", "dataset.path=none.jsonl"], "dataset.path"),
    "adapter of a tiny model": (["model/lora=qlora"], "model.lora.quantization"),
    "gpu": (["launch.gpu=H1000"], "launch.gpu"),
    "does not fit": (
        ["model=qwen2_5_7b", "launch.gpu=A100-40GB", "dataset=gsm8k"], "launch.gpu",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "count_visible_gpus", lambda: 0)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("words", "named"), BROKEN.values(), ids=BROKEN.keys())
def test_each_fault_is_named(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check.main(words)
    assert any(named in fault for fault in caught.value.faults), caught.value.faults


@pytest.mark.parametrize("recipe", sorted(path.stem for path in (paths.config_dir() / "experiment").glob("*.yaml")))
def test_no_shipped_recipe_has_a_fault(recipe: str) -> None:
    """On the machine that it was written for: its GPUs, its packages and its data are elsewhere."""
    settings = load.to_settings(load.compose([f"experiment={recipe}", "model.prime_from=null"]))
    prepared = prepare(settings, runs_here=False, reads_data=False, packages_here=False)
    assert prepared.plan.completions_per_step > 0


def test_what_is_not_installed_is_a_fault_here_and_a_note_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_exp.vllm_package.find_vllm", lambda: None)
    settings = load.to_settings(load.compose([*REAL, "vllm=colocate"]))
    with pytest.raises(ConfigError, match="vllm is not installed"):
        prepare(settings, runs_here=False, reads_data=False)
    notes = prepare(settings, runs_here=False, reads_data=False, packages_here=False).notes
    assert [note for note in notes if "vllm is not installed" in note]


def test_batch_and_advice_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """32 prompts x 4 = 128 completions of at most 1024 tokens = 131,072; 50 steps make 6,400."""
    assert check.main([*REAL, "algorithm.num_generations=4", "trainer.learning_rate=1e-5"]) == 0
    printed = capsys.readouterr().out
    assert "131,072" in printed
    assert "6,400" in printed
    advice = [line for line in printed.splitlines() if line.startswith("advice")]
    assert [line.split()[1].rstrip(":") for line in advice] == [
        "trainer.learning_rate=1e-05", "algorithm.num_generations=4", "algorithm.mask_truncated_completions=false",
        "vllm=off",
    ]  # fmt: skip
    assert "not read" in printed  # the data lie on the hub


SWITCHES = {
    "unknown": (["--deeep"], "--deep"),
    "no value": (["--signal", "--prompts"], "--prompts"),
    "no number": (["--signal", "--samples", "x"], "--samples"),
    "one sample": (["--signal", "--samples=1"], "--samples"),
    "without --signal": (["--prompts=3"], "--signal"),
    "too many": (["--signal", "--prompts=100000", "--samples=100"], "10000000"),
}


@pytest.mark.parametrize(("words", "named"), SWITCHES.values(), ids=SWITCHES.keys())
def test_wrong_switches_are_told(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        sort_words(words)


def test_a_file_of_pass_rates_that_cannot_be_written_is_told_before_sampling(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path, "is a folder"), (tmp_path / "file" / "rates.jsonl", "is not a folder")):
        with pytest.raises(ConfigError, match=f"--pass-rates {path}: .*{why}; give a file"):
            check.main(["--signal", "--pass-rates", str(path), "tracker=none"])


def test_pass_rates_without_bounds_are_told_to_do_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rates = tmp_path / "rates.jsonl"
    first = prepare(load.to_settings(load.compose(["tracker=none"]))).data.train[0]
    write_pass_rates(rates, [(first, 0.5)])
    words = ["tracker=none", f"output_dir={tmp_path}", f"dataset.pass_rates.path={rates}"]
    assert check.main(words) == 0
    assert f"dataset.pass_rates.path={rates} has no effect" in capsys.readouterr().out
    for bound in ("min_rate=0.1", "max_rate=0.9"):
        assert check.main([*words, f"dataset.pass_rates.{bound}"]) == 0
        assert "has no effect" not in capsys.readouterr().out


def test_switches_are_taken_out_of_the_words() -> None:
    found = sort_words(["algorithm=dapo", "--signal", "--samples", "4", "--sizes=8,2", "seed=1", "--prompts=5"])
    assert found.overrides == ["algorithm=dapo", "seed=1"]
    assert (found.signal, found.deep, found.num_samples, found.num_prompts) == (True, False, 4, 5)
    assert found.sizes == (2, 8)
    assert not found.is_sweep
    assert sort_words(["+sweeps=quick_cpu"]).is_sweep


#: What a login node should not wait for.
HEAVY = ("torch", "transformers", "trl", "datasets", "scipy", "mlflow", "wandb")
CODE = f"""
import json, sys
from grpo_exp.commands import check
from grpo_exp.data.pass_rates import write_pass_rates
check.main({[*REAL]!r})
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""


def test_it_imports_nothing_heavy_and_takes_a_second_and_a_half(tmp_path: Path) -> None:
    """Processor time, the least of five: the wall clock is everybody's."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert json.loads(done.stdout.splitlines()[-1]) == []
    assert min(seconds) <= 1.5
