"""What the pages promise: commands that compose, links that lead somewhere, curves and rules that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from grpo_exp.settings import load
from grpo_exp.settings.health_rules import HealthRules

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Hydra's own words and switches, which are no settings.
_OF_HYDRA = ("-", "hydra.", "hydra/", "+sweeps=")


def commands() -> list[str]:
    """Return each command in a code block that trains or checks, once, its lines joined."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            lines = block.replace("\\\n", " ").splitlines()
            found += [line for line in lines if line.startswith(("python -m grpo_exp.train ", "grpo-exp check "))]
    return list(dict.fromkeys(found))


def settings_in(command: str) -> list[str]:
    """Return the settings of a command; of several values of a sweep the first."""
    words = [word for word in shlex.split(command, comments=True) if not word.startswith(_OF_HYDRA)]
    words = [word for word in words if re.match(r"[+~]{0,2}[\w./]+(=|$)", word)]
    start = words.index("grpo_exp.train") + 1 if "grpo_exp.train" in words else 2
    settings = [word for word in words[start:] if "=" in word or word.startswith("~")]
    return [re.sub(r"=([^,\[{]+),.*", r"=\1", word) for word in settings] if "--multirun" in command else settings


@pytest.mark.parametrize("command", commands())
def test_command_composes(command: str) -> None:
    """Every group, option and key is there, and the values are valid; nothing is started."""
    load.to_settings(load.compose(settings_in(command)))


def test_commands_are_found_and_cut_up() -> None:
    assert "python -m grpo_exp.train algorithm=dr_grpo seed=1 trainer.max_steps=100" in commands()
    text = "python -m grpo_exp.train --multirun a.b=1,2 'tracker=[mlflow,wandb]' hydra/launcher=slurm   # a comment"
    assert settings_in(text) == ["a.b=1", "tracker=[mlflow,wandb]"]
    assert settings_in("grpo-exp check --signal --prompts 64 model=tiny") == ["model=tiny"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


def test_every_page_can_be_found_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    linked = set(re.findall(r"\(docs/([\w.]+\.md)", readme))
    assert {page.name for page in PAGES[2:]} <= linked


def test_troubleshooting_names_curves_and_rules_that_exist() -> None:
    text, metrics = (ROOT / "docs/troubleshooting.md").read_text(), (ROOT / "docs/metrics.md").read_text()
    listed = {
        f"{stem}{name}"
        for stem, names in re.findall(r"`(train/[\w/]*)\{([\w,]+)\}", metrics)
        for name in names.split(",")
    } | set(re.findall(r"`(train/[\w/<>]+)", metrics))
    for curve in set(re.findall(r"`(train/[\w/<>]+)`", text)):
        assert curve in listed, curve
    for words in re.findall(r"[Rr]ules? ((?:`\w+`(?:, | and )?)+)", text.replace("\n", " ")):
        for rule in re.findall(r"`(\w+)`", words):
            assert rule in HealthRules.model_fields, rule
