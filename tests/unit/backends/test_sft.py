"""Supervised fine-tuning: what is learned, that GRPO begins with it, and what is refused before a model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from grpo_exp import worker
from grpo_exp.backends.trl import sft
from grpo_exp.composition import build_request
from grpo_exp.data.examples import Example
from grpo_exp.data.prompts import build_prompt
from grpo_exp.errors import ConfigError, ExitCode
from grpo_exp.models.example_tokens import encode_example
from grpo_exp.models.load import load_policy
from grpo_exp.models.tiny import build_model
from grpo_exp.models.tokenizer import build_tokenizer
from grpo_exp.preflight import prepare
from grpo_exp.rundir import RunDirectory
from grpo_exp.settings import load
from grpo_exp.settings.batching import solve_batch
from grpo_exp.settings.run import RunSettings
from grpo_exp.sft_run import build_sft_request, run_primed
from unit.random_models import CHATML, save_tokenizer

# transformers 5.24 renamed what TRL 1.16 still calls gradient checkpointing.
pytestmark = pytest.mark.filterwarnings(r"ignore:`\w*gradient_checkpointing\w*` is deprecated:FutureWarning")

SHAPE = (
    "model.architecture.hidden_size=16", "model.architecture.intermediate_size=32",
    "model.architecture.num_attention_heads=2", "model.architecture.num_key_value_heads=1", "model.priming.steps=2",
    "model.priming.batch_size=4",
)  # fmt: skip
SMALL = (*SHAPE, "tracker=none", "launch=inline", "launch.threads_per_process=1", "dataset.eval_size=2",
         "dataset.train_size=32", "reward.engine.num_workers=1")  # fmt: skip


def settings_of(*words: str) -> RunSettings:
    return load.to_settings(load.compose([*SMALL, *words], primary="sft"))


# ------------------------------------------------------------------------------------------ tokens


def test_prompt_is_that_of_grpo_and_the_turn_ends() -> None:
    tokenizer = build_tokenizer()
    prompt = build_prompt("2+3?", None)
    ids, answer = encode_example(tokenizer, prompt, "<think>2+3=5</think>\\boxed{5}")
    written = tokenizer.apply_chat_template([dict(m) for m in prompt], add_generation_prompt=True, return_dict=True)
    assert ids == written["input_ids"]
    assert tokenizer.decode(answer) == "<think>2+3=5</think>\\boxed{5}<eos>"


@pytest.mark.parametrize("completion", ["<think>\na\n</think>\n\nb", "a\n</think>\n\nb"])
def test_reasoning_that_the_prompt_opens_is_not_opened_again(completion: str, tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path)
    tokenizer.chat_template = CHATML + "{% if add_generation_prompt %}<think>\n{% endif %}"
    ids, answer = encode_example(tokenizer, build_prompt("q", None), completion)
    assert tokenizer.decode(ids).endswith("<think>\n")
    assert tokenizer.decode(answer) == "a\n</think>\n\nb<|im_end|>"


def test_long_examples_are_left_out_and_counted() -> None:
    """`<user>1?<assistant>` has 4 tokens, `12<eos>` 3, `123<eos>` 4: with a limit of 7 the second goes."""
    examples = [Example(build_prompt("1?", None), text) for text in ("12", "123")]
    rows, too_long = sft.encode_examples(build_tokenizer(), examples, 7)
    assert (len(rows), too_long) == (1, 1)
    assert rows[0]["completion_mask"] == [0, 0, 0, 0, 1, 1, 1]
    with pytest.raises(ConfigError, match=r"sft.max_length=5: all of the 2 examples have more tokens"):
        sft.encode_examples(build_tokenizer(), examples, 5)


# ------------------------------------------------------------------------------------------ what is learned


class Watcher:
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []
        self.notes: list[str] = []

    def on_phase(self, name: str, done: int = 0, total: int = 0) -> None: ...

    def on_completions(self, info: Any, rows: Any) -> None: ...

    def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
        self.metrics.append(metrics)

    def on_note(self, text: str) -> None:
        self.notes.append(text)

    def wants_stop(self) -> bool:
        return False


def test_loss_is_the_cross_entropy_of_the_completions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4 examples in 2 micro-steps: the mean over all their completion tokens, worked out here with log_softmax."""
    settings = settings_of(
        "trainer.max_steps=1", "trainer.prompts_per_step=4", "trainer.per_device_train_batch_size=2",
        "trainer.eval_samples=1", "sft.num_examples=4", "trainer.save_model=false", "dataset.max_operand=99",
    )  # fmt: skip
    assert settings.model.kind == "tiny"
    model, tokenizer = build_model(settings.model.architecture, 0), build_tokenizer()
    monkeypatch.setattr(sft, "load_policy", lambda *_, **__: (model, tokenizer))
    prepared = prepare(settings)
    assert settings.sft is not None
    total, count = 0.0, 0
    for example in sft.build_examples(prepared.data, settings.sft):
        prompt, completion = encode_example(tokenizer, example.prompt, example.completion)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + completion])).logits[0]
        log_probs = torch.log_softmax(logits.double(), dim=-1)
        total -= sum(log_probs[len(prompt) - 1 + i, token].item() for i, token in enumerate(completion))
        count += len(completion)
    watcher = Watcher()
    outcome = sft.run_sft(settings, prepared.plan, prepared.data, watcher, model_dir=tmp_path / "model", use_cpu=True)
    assert outcome.steps == 1
    (loss,) = [metrics["train/loss"] for metrics in watcher.metrics if "train/loss" in metrics]
    assert loss == pytest.approx(total / count, rel=1e-5)
    assert watcher.notes[0].startswith("sft: 4 worked examples; the first completion is '<think>")


def test_batch_of_examples_is_solved_without_groups() -> None:
    """16 examples over one process: at most 256 at once, and no completion is generated."""
    plan = solve_batch(settings_of("trainer.prompts_per_step=16"))
    assert plan.describe() == "16 examples a step = 1 process x 1 micro-step x 16"
    with pytest.raises(ConfigError, match="16 examples of a process do not divide by it; use 4 or 8"):
        solve_batch(settings_of("trainer.prompts_per_step=16", "trainer.per_device_train_batch_size=5"))


# ------------------------------------------------------------------------------------------ the chain


def test_grpo_begins_with_what_fine_tuning_has_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`model.prime_from=sft` makes the fine-tuning run, then GRPO on its weights; again, it finds it done."""
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(worker, "_draw", lambda *_: None)
    short = ("trainer.max_steps=1", "trainer.eval_before=false", "trainer.eval_samples=1", "trainer.prompts_per_step=2")
    words = [*SMALL, *short, "trainer.max_completion_length=12", f"output_dir={tmp_path}", "model.prime_from=sft"]
    steps = ["trainer.max_steps=2", "trainer.prompts_per_step=8", "sft.num_examples=16", "trainer.eval_samples=1"]
    compose = load.compose

    def shorter(given: list[str], *, primary: str = "train") -> Any:
        return compose([*given, *(steps if primary == "sft" else [])], primary=primary)

    monkeypatch.setattr(load, "compose", shorter)
    console = Console(quiet=True)
    assert run_primed(build_request(load.compose(words), words), words, console) == ExitCode.COMPLETED
    (primed,) = tmp_path.glob("sft-arithmetic/*")
    (trained,) = tmp_path.glob("grpo-arithmetic/*")
    config = json.loads((trained / "config.json").read_text())
    assert config["model"]["prime_from"] == str(primed)
    assert RunDirectory(primed).read_config()["sft"]["num_examples"] == 16
    settings = RunSettings.model_validate(config)
    begins, own = (
        load_policy(model, on_priming_step=lambda *_: None)[0].state_dict()
        for model in (settings.model, settings.model.model_copy(update={"prime_from": None}))
    )
    saved = load_file(primed / "model" / "model.safetensors")
    assert all(torch.equal(begins[name], weight) for name, weight in saved.items())
    assert not all(torch.equal(own[name], weight) for name, weight in saved.items())
    assert run_primed(build_request(load.compose(words), words), words, console) == ExitCode.COMPLETED
    assert len(list(tmp_path.glob("sft-arithmetic/*"))) == 1


def test_command_is_written_down_as_it_was_typed(tmp_path: Path) -> None:
    words = [*SMALL, f"output_dir={tmp_path}"]
    request = build_sft_request(words, ["grpo-exp", "sft", *words])
    assert request.settings.sft is not None
    assert request.settings.name == "sft-arithmetic"
    assert request.command == ["grpo-exp", "sft", *words]


# ------------------------------------------------------------------------------------------ what is refused


def refusal(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        prepare(load.to_settings(load.compose([*SMALL, *words])))
    return str(caught.value)


def a_run(folder: Path, *files: str, **model: Any) -> Path:
    (folder / "model").mkdir(parents=True)
    own = load.to_settings(load.compose([*SMALL])).model.model_dump(mode="json")
    (folder / "config.json").write_text(json.dumps({"model": {**own, **model}}))
    for name in files:
        (folder / "model" / name).write_text("{}")
    return folder


def test_folder_to_begin_with_must_hold_trained_weights_of_this_model(tmp_path: Path) -> None:
    assert "is no run folder; give one that grpo-exp sft" in refusal(f"model.prime_from={tmp_path}")
    empty = a_run(tmp_path / "empty")
    assert "holds no trained model; let that run end" in refusal(f"model.prime_from={empty}")
    bare = a_run(tmp_path / "bare", "config.json")
    assert "holds no trained model; let that run end" in refusal(f"model.prime_from={bare}")
    adapter = a_run(tmp_path / "adapter", "adapter_config.json")
    assert "grpo-exp merge" in refusal(f"model.prime_from={adapter}")
    other = a_run(tmp_path / "other", "config.json", "model.safetensors", kind="local")
    assert "that run trained model.kind=local and this one has tiny" in refusal(f"model.prime_from={other}")
    assert "only `python -m grpo_exp.train` of a single run" in refusal("model.prime_from=sft")
    right = a_run(tmp_path / "right", "config.json", "model.safetensors")
    prepare(load.to_settings(load.compose([*SMALL, f"model.prime_from={right}", "trainer.prompts_per_step=4"])))


def test_recipe_that_fine_tunes_first_does_not_ask_for_it_twice() -> None:
    """The recipe's own numbers for GRPO do not reach fine-tuning, either."""
    words = ["experiment=gsm8k_sft_qwen2_5_0_5b", "tracker=none"]
    grpo = load.to_settings(load.compose(words))
    tuned = load.to_settings(load.compose(words, primary="sft"))
    assert (grpo.model.prime_from, tuned.model.prime_from) == ("sft", None)
    assert (tuned.trainer.max_steps, tuned.trainer.prompts_per_step, tuned.trainer.learning_rate) == (50, 16, 1e-5)
    assert (tuned.dataset, tuned.name) == (grpo.dataset, "sft-gsm8k")


def test_faults_of_grpo_come_before_anything_is_fine_tuned(tmp_path: Path) -> None:
    words = [*SMALL, f"output_dir={tmp_path}", "model.prime_from=sft", "algorithm.dynamic_sampling.metric=nothing"]
    with pytest.raises(ConfigError, match=r"algorithm.dynamic_sampling.metric=nothing"):
        run_primed(build_request(load.compose(words), words), words, Console(quiet=True))
    assert not list(tmp_path.iterdir())


def test_adapter_that_nobody_could_begin_with_is_not_trained_first(tmp_path: Path) -> None:
    """It was trained, and only then refused as what GRPO begins with."""
    words = [*SMALL, f"output_dir={tmp_path}", "model.prime_from=sft", "model/lora=on"]
    with pytest.raises(ConfigError, match=r"model.prime_from=sft: with model.lora.enabled=true .*grpo-exp merge"):
        run_primed(build_request(load.compose(words), words), words, Console(quiet=True))
    assert not list(tmp_path.iterdir())


def test_data_without_solutions_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}?", "target": "1"}) + "\n" for i in range(60)))
    data = ["dataset=jsonl", f"dataset.path={rows}"]
    small = [word for word in SMALL if not word.startswith("dataset")]
    with pytest.raises(ConfigError, match=r"has a worked solution; name its column with dataset.solution"):
        prepare(load.to_settings(load.compose([*small, *data], primary="sft")))
