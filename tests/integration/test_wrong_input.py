"""Wrong input is answered quickly, with exit code 2, the fix named and no traceback; nothing is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_exp.train import main
from integration.command import run_train

#: What is typed -> words that the answer must hold: the value, the rule, the fix.
CASES = {
    "option": (["algorithm=dpao"], ["algorithm=dpao", "did you mean algorithm=dapo?", "dr_grpo"]),
    "group": (["algoritm=dapo"], ["algoritm", "did you mean algorithm?"]),
    "key": (["trainer.max_step=5"], ["trainer.max_step", "did you mean trainer.max_steps"]),
    "key with a plus": (["+trainer.max_step=5"], ["trainer.max_step", "did you mean trainer.max_steps"]),
    "plus on a key that exists": (["+trainer.max_steps=5"], ["drop the '+'", "trainer.max_steps=5"]),
    "new key": (["+foo=1"], ["foo", "no such setting", "algorithm"]),
    "two values": (["seed=1,2"], ["seed=[1,2]", "--multirun"]),
    "two options": (["reward=math,math_only"], ["the name of one option", "--multirun"]),
    "list of options": (["algorithm=[grpo,dapo]"], ["the name of one option", "--multirun algorithm=grpo,dapo"]),
    "plus on a group": (["+algorithm=dapo"], ["drop the '+': algorithm=dapo"]),
    "sweep without a plus": (["sweeps=quick_cpu"], ["+sweeps=quick_cpu"]),
    "group left out": (["~algorithm"], ["a run needs one", "algorithm=bnpo, cispo, dapo, dr_grpo, gdpo, grpo"]),
    "no key": (["=1"], ["KEY=VALUE"]),
    "no value": (["algorithm"], ["algorithm=VALUE"]),
    "Hydra's own setting": (["hydra.foo=1"], ["hydra.foo", "--cfg hydra"]),
    "sweep folder that cannot be made": (
        ["--multirun", "seed=1,2", "hydra.sweep.dir=/proc/x"],
        ["hydra.sweep.dir", "/proc/x"],
    ),
    "braces": (["name=\\boxed{}"], ["quotes", "\"name='\\boxed{}'\""]),
    "equals sign": (["name=x=1"], ["\"name='x=1'\""]),
    "dangling interpolation": (["name=${nope.y}"], ["name", "nope.y"]),
    "G of one": (["algorithm.num_generations=1"], ["algorithm.num_generations=1", "at least 2"]),
    # 256 = 2^8 completions: 6 does not divide them; 4 and 8 are the nearest that do, 252 = 42 x 6 and 258 = 43 x 6.
    "G not dividing": (
        ["trainer.prompts_per_step=null", "trainer.completions_per_step=256", "algorithm.num_generations=6"],
        ["num_generations=4 or 8", "completions_per_step=252 or 258"],
    ),
    # 32 x 5 = 160 is no multiple of 64; 32 x G is for G = 2, 4, 6, ...
    "G not dividing by the micro-batch": (
        ["algorithm.num_generations=5", "trainer.per_device_train_batch_size=64"],
        ["num_generations=4 or 6"],
    ),
    "upper clip below the lower": (["algorithm.epsilon_high=0.1"], ["algorithm.epsilon_high", "0.1", "0.2"]),
    "text for a number": (["trainer.learning_rate=fast"], ["trainer.learning_rate=fast", "number"]),
    "temperature": (["algorithm.temperature=-1"], ["algorithm.temperature=-1", "above 0"]),
    "no file": (["dataset=jsonl"], ["dataset.path=FILE.jsonl"]),
    "missing file": (["dataset=jsonl", "dataset.path=nope.jsonl"], ["nope.jsonl", "existing file"]),
    "output folder under a file": (["output_dir=rows.jsonl/x"], ["output_dir", "not a folder"]),
    "output folder that cannot be made": (["output_dir=/proc/x"], ["output_dir=/proc/x", "choose another folder"]),
    "group set to null": (["trainer=null"], ["trainer=null", "trainer=default"]),
    "model folder that is not there": (
        ["model=local", "model.path=/nope/x"],
        ["model.path=/nope/x", "save_pretrained"],
    ),
    "seed of more than 32 bits": (["seed=4294967296"], ["seed=4294967296", "at most 4294967295"]),
    "folder for a file": (["dataset=jsonl", "dataset.path=."], ["dataset.path", "is not a file"]),
    "no path of a model": (["model=local"], ["model.path=FOLDER"]),
    "vLLM that is not installed": (["vllm=colocate"], ["grpo-exp[vllm]", "vllm=off"]),
    "extra field that is owned": (["+trainer.extra.beta=1"], ["trainer.extra.beta", "algorithm.beta"]),
    "extra field that is unknown": (
        ["+trainer.extra.top_kk=1"],
        ["trainer.extra.top_kk", "did you mean trainer.extra.top_k?"],
    ),
    "column": (
        ["dataset=jsonl", "dataset.path=rows.jsonl", "dataset.prompt_column=question"],
        ["dataset.target_column=target", "answer, question"],
    ),
    "too few prompts": (
        [
            "dataset=jsonl",
            "dataset.path=rows.jsonl",
            "dataset.prompt_column=question",
            "dataset.target_column=answer",
        ],
        ["3 training prompts are fewer than the 32 of one step", "prompts_per_step=3"],
    ),
}


#: Inputs that take the ways to a fault from the shortest to the longest: a word; values; everything, data included.
TIMED = ("option", "extra field that is unknown", "too few prompts")


def fewest_cpu_seconds(*words: str, code: int, cwd: Path) -> float:
    """Return the processor time of a command, the least of five.

    Other work on the machine stretches the clock, and by way of caches and shared cores this time, too.
    """
    times = []
    for _ in range(5):
        finished = run_train(*words, cwd=cwd)
        assert finished.code == code, finished.output
        times.append(finished.cpu_seconds)
        if times[-1] < 1.5:
            break
    return min(times)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [f'{{"question": "{n}+3?", "answer": "{n + 3}"}}\n' for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    return tmp_path


@pytest.mark.parametrize(("words", "expected"), CASES.values(), ids=CASES.keys())
def test_one_fault_is_answered(
    words: list[str],
    expected: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        main(words)
    told = "".join(capfd.readouterr())
    assert ended.value.code == 2, told
    assert "Traceback" not in told
    for text in expected:
        assert text in told
    assert [entry.name for entry in folder.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("case", TIMED)
def test_a_fault_is_answered_within_two_seconds(case: str, folder: Path) -> None:
    assert fewest_cpu_seconds(*CASES[case][0], code=2, cwd=folder) < 2.0


def test_faults_of_words_are_told_all_together(folder: Path) -> None:
    finished = run_train("model=tniy", "algorithm=dpao", "name=x=1", cwd=folder)
    assert finished.code == 2
    assert "Traceback" not in finished.output
    for text in ("3 faults", "model=tiny?", "algorithm=dapo?", "\"name='x=1'\""):
        assert text in finished.output


def test_value_faults_are_told_all_together(folder: Path) -> None:
    """Three wrong values in three groups, a missing file and a folder that cannot be: five lines of one answer."""
    finished = run_train(
        "trainer.learning_rate=fast",
        "algorithm.temperature=-1",
        "seed=-1",
        "dataset=jsonl",
        "dataset.path=nope.jsonl",
        "output_dir=/proc/x",
        cwd=folder,
    )
    assert finished.code == 2
    for text in ("trainer.learning_rate=fast", "algorithm.temperature=-1", "seed=-1", "nope.jsonl", "=/proc/x"):
        assert text in finished.output


@pytest.mark.parametrize("switch", [["--cfg", "job"], ["--help"]])
def test_looking_at_the_settings_is_quick(switch: list[str], tmp_path: Path) -> None:
    finished = run_train(*switch, cwd=tmp_path)
    assert finished.code == 0
    assert "algorithm" in finished.output
    assert "grpo" in finished.output
    # To list the options Hydra copies each of a hundred files: 1.3 s of its own.
    assert fewest_cpu_seconds(*switch, code=0, cwd=tmp_path) < 3.0
    assert not list(tmp_path.iterdir())
