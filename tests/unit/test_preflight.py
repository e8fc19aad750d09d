"""What is said before anything is loaded: all faults at once, and notes that need no action."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grpo_exp.errors import ConfigError
from grpo_exp.preflight import Prepared, prepare
from grpo_exp.settings import load


def prepared(*words: str) -> Prepared:
    return prepare(load.to_settings(load.compose(["tracker=none", "dataset.train_size=64", *words])))


def faults(*words: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        prepared(*words)
    return list(caught.value.faults)


def test_default_command_has_no_fault(tmp_path: Path) -> None:
    found = prepared("algorithm=dapo", "reward=math", f"output_dir={tmp_path}")
    assert found.plan.completions_per_step == 32 * 8
    assert len(found.data.train) == 64


def test_faults_of_several_groups_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = faults(
        "+trainer.extra.beta=1",
        "+trainer.extra.log_completion=true",
        "trainer.max_completion_length=512",
        f"output_dir={tmp_path}/file/outputs",
        "trainer.per_device_train_batch_size=7",
    )
    starts = [
        "trainer.extra.beta: is decided elsewhere",
        "trainer.extra.log_completion: is no field",
        "trainer.max_completion_length=512: the model reads at most 512 tokens",
        f"output_dir={tmp_path}/file/outputs: {tmp_path}/file is not a folder; choose another folder",
        "algorithm.num_generations=8: 32 prompts x 8 = 256 completions",
    ]
    assert len(found) == len(starts)
    for fault, start in zip(found, starts, strict=True):
        assert fault.startswith(start)


def test_data_fault_is_told_beside_others(tmp_path: Path) -> None:
    """The batch can be solved, so the data are looked at, too: 63 prompts for 64 a step."""
    found = faults("trainer.prompts_per_step=64", "dataset.train_size=63", "trainer.max_completion_length=512")
    assert [fault.partition(":")[0] for fault in found] == ["trainer.max_completion_length=512", "dataset"]


def test_completion_that_fits_leaves_room_for_the_prompt() -> None:
    assert prepared("trainer.max_completion_length=400").plan.prompts_per_step == 32


def test_folder_that_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    prepared(f"output_dir={tmp_path}/a/b/c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("vllm", "device"), [("colocate", "cpu"), ("server", "cpu")])
def test_vllm_needs_its_package_and_a_gpu(vllm: str, device: str) -> None:
    found = faults(f"vllm={vllm}", f"launch.device={device}")
    assert f"vllm={vllm}: needs a GPU and launch.device is cpu; use vllm=off" in found


def test_file_without_the_mapped_column(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "2+3?", "answer": "5"}) + "\n")
    found = faults("dataset=jsonl", "~dataset.train_size", "+dataset.train_size=null", f"dataset.path={path}")
    assert len(found) == 2
    assert found[0].startswith(f"dataset.prompt_column=prompt: {path} has no column 'prompt'")
    assert found[1].startswith(f"dataset.target_column=target: {path} has no column 'target'")


# ------------------------------------------------------------------------------------------ notes


def test_dapo_says_in_one_line_that_dynamic_sampling_is_missing() -> None:
    (note,) = prepared("algorithm=dapo").notes
    assert note.startswith("algorithm=dapo wants dynamic sampling, which does not exist here yet")
    assert "\n" not in note


def test_other_presets_have_nothing_to_say() -> None:
    assert prepared("algorithm=grpo").notes == ()
    assert prepared("algorithm=dr_grpo").notes == ()


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (
            ["algorithm=dr_grpo", "algorithm.use_bias_correction_kl=true"],
            "algorithm.use_bias_correction_kl has no effect",
        ),
        (
            ["algorithm=dr_grpo", "algorithm.scale_rewards=group"],
            "algorithm.scale_rewards=group with loss_type=dr_grpo",
        ),
        (["algorithm.top_p=0.9"], "algorithm.top_p=0.9: samples come from a cut distribution"),
        (["trainer.learning_rate=5e-4"], "trainer.learning_rate=0.0005 on model=tiny: 5e-4 is known to collapse"),
    ],
)
def test_setting_with_a_catch_is_told(words: list[str], start: str) -> None:
    (note,) = prepared(*words).notes
    assert note.startswith(start)


def test_rows_left_out_are_counted_in_a_note(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    rows = [{"prompt": f"{i}", "target": "1"} for i in range(50)] + [{"prompt": "", "target": "1"}] * 3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = prepared("dataset=jsonl", "~dataset.train_size", "+dataset.train_size=null", f"dataset.path={path}")
    assert found.notes == ("dataset: 3 rows without a prompt are left out",)


def test_reward_function_that_is_missing_is_told_before_the_run(tmp_path: Path) -> None:
    component = "+reward.components.mine={kind: python, function: 'no_such_module_x:f'}"
    (fault,) = faults(f"output_dir={tmp_path}", component)
    assert fault.startswith("reward.components.mine.function=no_such_module_x:f: there is no module 'no_such_module_x'")
