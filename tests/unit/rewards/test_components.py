"""The public entry: components built from settings."""

from __future__ import annotations

import subprocess
import sys

import pytest

from grpo_exp.errors import ConfigError, DataError
from grpo_exp.rewards.components import build_components, reason_counts
from grpo_exp.rewards.score import Score
from grpo_exp.settings.reward import RewardSettings

SETTINGS = RewardSettings.model_validate(
    {
        "components": {
            "correctness": {"kind": "math"},
            "format": {"kind": "think_format", "weight": 0.25, "strict_newlines": True},
        }
    }
)


def test_components_carry_name_weight_and_options() -> None:
    correctness, form = build_components(SETTINGS)
    assert (correctness.name, correctness.weight) == ("correctness", 1.0)
    assert (form.name, form.weight) == ("format", 0.25)
    assert form.score(["<think>a</think>b"], {}) == [Score(0.0, "missing_newlines")]


def test_scores_keep_the_order_of_the_completions() -> None:
    correctness, _ = build_components(SETTINGS)
    completions = [
        r"\boxed{\sqrt{8}}",
        r"\boxed{2}",
        [{"role": "assistant", "content": r"\boxed{3}"}],
        r"\boxed{4}",
    ]
    scores = correctness.score(completions, {"target": [r"2\sqrt{2}", 3, "3", None]})
    assert scores == [
        Score(1.0, "match"),
        Score(0.0, "mismatch"),
        Score(1.0, "match"),
        Score(None, "no_target"),
    ]
    assert reason_counts(scores) == {"match": 2, "mismatch": 1, "no_target": 1}


def test_prefilled_column_reaches_both_components() -> None:
    correctness, form = build_components(SETTINGS)
    columns = {"target": ["7", "7"], "prefilled": [True, False]}
    completions = ["so 7\n</think>\n\\boxed{7}", "so 7\n</think>\n\\boxed{7}"]
    assert [score.value for score in correctness.score(completions, columns)] == [1.0, 1.0]
    assert [score.reason for score in form.score(completions, columns)] == [
        "well_formed",
        "text_before_reasoning",
    ]


def test_missing_target_column_names_the_fix() -> None:
    correctness, _ = build_components(SETTINGS)
    with pytest.raises(ConfigError, match=r"correctness: .* no column 'target'.*'answer'.*name the"):
        correctness.score(["7"], {"answer": ["7"]})


def test_column_of_another_length_is_refused() -> None:
    correctness, _ = build_components(SETTINGS)
    with pytest.raises(ConfigError, match="column 'target' has 1 values for 2 completions"):
        correctness.score(["7", "8"], {"target": ["7"]})


def test_completion_of_another_kind_is_refused() -> None:
    correctness, _ = build_components(SETTINGS)
    with pytest.raises(DataError, match="a completion is a int"):
        correctness.score([7], {"target": ["7"]})  # type: ignore[list-item]


def test_target_of_another_kind_is_refused() -> None:
    correctness, _ = build_components(SETTINGS)
    with pytest.raises(DataError, match="a target is a dict"):
        correctness.score([r"\boxed{7}"], {"target": [{"answer": 7}]})


def test_importing_and_scoring_integers_loads_no_heavy_package() -> None:
    program = (
        "import sys\n"
        "from grpo_exp.rewards.components import build_components\n"
        "from grpo_exp.rewards.math_answer import score_math\n"
        "assert score_math(r'\\boxed{7}', 7).value == 1.0\n"
        "print(sorted({'torch', 'trl', 'transformers', 'sympy', 'math_verify'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
