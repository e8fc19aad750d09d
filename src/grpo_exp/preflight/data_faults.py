"""Faults of the data in view of the model: prompts it cannot read, or too long for it."""

from __future__ import annotations

from grpo_exp.data.examples import build_examples
from grpo_exp.data.prompts import PromptData, PromptRow, difficulty_of
from grpo_exp.errors import DataError
from grpo_exp.preflight.tiny_text import most_tokens, unreadable
from grpo_exp.settings.run import RunSettings
from grpo_exp.settings.served import length_fault
from grpo_exp.settings.sft import SftSettings

_MAX_HELD_OUT = 1_000_000


def data_faults(settings: RunSettings, data: PromptData) -> list[str]:
    """Return what is wrong with these prompts for this model and these lengths."""
    faults = [*_evaluation_faults(settings, data), *_curriculum_faults(settings, data)]
    if settings.sft is not None:
        faults += _example_faults(data, settings.sft)
    if settings.model.kind == "tiny":
        rows = (*data.train, *data.evaluation)
        faults += [*_character_faults(settings, rows), *_tiny_length_faults(settings, rows)]
        engine_fault = length_fault(settings, max(most_tokens(row.prompt) for row in data.train))
        faults += [] if engine_fault is None else [engine_fault]
    return faults


def _evaluation_faults(settings: RunSettings, data: PromptData) -> list[str]:
    samples, prompts = settings.trainer.eval_samples, len(data.evaluation)
    if samples * prompts <= _MAX_HELD_OUT:
        return []
    return [
        f"trainer.eval_samples={samples}: {prompts} held-out prompts x {samples} are {samples * prompts} completions, "
        f"and at most {_MAX_HELD_OUT} are sampled; use trainer.eval_samples={_MAX_HELD_OUT // prompts} or less, or "
        "lower dataset.eval_size"
    ]


def _example_faults(data: PromptData, settings: SftSettings) -> list[str]:
    try:
        build_examples(data, settings)
    except DataError as error:
        return list(error.faults)
    return []


def _curriculum_faults(settings: RunSettings, data: PromptData) -> list[str]:
    if settings.dataset.curriculum.order != "easy_to_hard" or any(difficulty_of(row) is not None for row in data.train):
        return []
    return [
        "dataset.curriculum.order=easy_to_hard: nobody knows how difficult the prompts are; name a column with "
        "dataset.difficulty_column=COLUMN or dataset.pass_rate_column=COLUMN, give dataset.pass_rates.path=FILE, or "
        "use dataset.curriculum.order=online, which finds out"
    ]


def _character_faults(settings: RunSettings, rows: tuple[PromptRow, ...]) -> list[str]:
    """Refuse what would reach the model as `<unk>`: it could not tell one such prompt from another."""
    system = settings.dataset.system_prompt
    if system is not None and unreadable(system):
        return [
            f"dataset.system_prompt={_short(system)}: holds {unreadable(system)!r} and the built-in policy reads "
            "ASCII letters, digits and punctuation only; write it without, or use model=local"
        ]
    wrong = [row for row in rows if any(unreadable(message["content"]) for message in row.prompt)]
    if not wrong:
        return []
    text = next(message["content"] for message in wrong[0].prompt if unreadable(message["content"]))
    return [
        f"dataset: {len(wrong)} of {len(rows)} prompts hold characters that the built-in policy cannot read, the "
        f"first is {_short(text)} with {unreadable(text)!r}; it reads ASCII letters, digits and punctuation, so write "
        "or leave out those rows, or use model=local"
    ]


def _tiny_length_faults(settings: RunSettings, rows: tuple[PromptRow, ...]) -> list[str]:
    assert settings.model.kind == "tiny"
    limit, completion = settings.model.architecture.max_position_embeddings, settings.trainer.max_completion_length
    if completion >= limit:
        return []  # told by the group faults, whatever the prompts are
    room = limit - completion
    lengths = [most_tokens(row.prompt) for row in rows]
    too_long = sum(length > room for length in lengths)
    if not too_long:
        return []
    longest = max(lengths)
    return [
        f"dataset: {too_long} of {len(rows)} prompts have more than {room} tokens, the longest {longest}, and with "
        f"trainer.max_completion_length={completion} they pass the {limit} that the model reads; raise "
        f"model.architecture.max_position_embeddings to {longest + completion}, or leave out those rows"
    ]


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
