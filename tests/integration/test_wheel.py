"""The wheel works: built, installed elsewhere, every preset composes from another folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
CONF = CHECKOUT / "conf"

#: Composes each list of words in one process and tells where the configuration came from.
COMPOSE = """
import json, sys
from grpo_exp import paths
from grpo_exp.settings import load
names = {}
for words in json.loads(sys.argv[1]):
    names[" ".join(words)] = load.to_settings(load.compose(words)).name
print(json.dumps({"config_dir": str(paths.config_dir()), "package": paths.__file__, "names": names}))
"""
#: What an option cannot do without, and only a user knows.
NEEDED = {
    "dataset=jsonl": ["dataset.path=rows.jsonl"],
    "dataset=hub": ["dataset.path=rows.jsonl"],
    "model=local": ["model.path=folder"],
    "model=hub": ["model.path=organisation/name"],
}


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder and return what it printed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHONPATH", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], CHECKOUT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of a new environment that has the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    run([sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", str(wheel)], folder)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # A path in a .pth file is searched after the environment's own packages, and .pth files there are not read: so
    # this environment's editable install of the checkout is not seen.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return python


def options() -> list[str]:
    """Return every option of every group, as a user types it."""
    files = sorted(path.relative_to(CONF).with_suffix("") for path in CONF.glob("*/**/*.yaml"))
    return [f"{path.parent.as_posix()}={path.name}" for path in files]


def test_wheel_holds_configuration_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [*CONF.rglob("*.yaml"), *(CHECKOUT / "slurm").glob("*.j2")]
    expected = {f"grpo_exp/conf/{path.relative_to(CONF)}" for path in files if path.is_relative_to(CONF)}
    expected |= {f"grpo_exp/slurm_templates/{path.name}" for path in files if not path.is_relative_to(CONF)}
    expected |= {f"grpo_exp/conf_sweeps/sweeps/{path.name}" for path in (CHECKOUT / "sweeps").glob("*.yaml")}
    expected |= {f"hydra_plugins/{path.name}" for path in (CHECKOUT / "src" / "hydra_plugins").glob("*.py")}
    assert expected <= names
    assert "hydra_plugins/__init__.py" not in names  # a namespace package: other plugins share it
    # Top folders: the package, Hydra's plugins, and the metadata.
    assert {name.partition("/")[0].partition("-")[0] for name in names} <= {"grpo_exp", "hydra_plugins"}


def test_every_option_composes_from_the_installed_package(installed: Path, tmp_path: Path) -> None:
    words = [[option, *NEEDED.get(option, [])] for option in options()]
    sweeps = [[f"+sweeps={path.stem}"] for path in (CHECKOUT / "sweeps").glob("*.yaml")]
    groups = {option.partition("=")[0] for option in options()}
    assert {"algorithm", "model", "reward", "dataset", "vllm", "tracker", "launch", "health", "trainer"} <= groups
    assert ["+sweeps=quick_cpu"] in sweeps

    told = json.loads(run([str(installed), "-c", COMPOSE, json.dumps([*words, *sweeps])], tmp_path))

    package = installed.parents[1] / "lib"
    assert Path(told["package"]).is_relative_to(package)
    assert Path(told["config_dir"]).is_relative_to(package)
    assert Path(told["config_dir"]) == Path(told["package"]).parent / "conf"
    assert len(told["names"]) == len(words) + len(sweeps)
    assert told["names"]["+sweeps=quick_cpu"] == "quick_cpu"
    assert told["names"]["algorithm=dr_grpo"] == "dr_grpo-arithmetic"  # name: ${algorithm.name}-${dataset.kind}


def test_commands_of_the_installed_package_answer(installed: Path, tmp_path: Path) -> None:
    shown = run([str(installed), "-m", "grpo_exp.train", "algorithm=dapo", "--cfg", "job"], tmp_path)
    assert "epsilon_high: 0.28" in shown
    planned = [str(installed), "-m", "grpo_exp.train", "--multirun", "+sweeps=quick_cpu", "hydra.sweeper.dry_run=true"]
    assert "8 runs: 4 points, seeds 0, 1" in run(planned, tmp_path)
    script = installed.with_name("grpo-exp")
    assert "check" in run([str(script), "--help"], tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing is written by asking
