"""Reward functions of the user: imported by name, called with a time limit, their answers checked."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import inspect
import math
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from numbers import Real
from pathlib import Path
from typing import Any

from grpo_exp.errors import ConfigError, RunError
from grpo_exp.rewards.columns import Columns
from grpo_exp.rewards.completion import Completion
from grpo_exp.rewards.score import Score

_SIGNATURE = "function(prompts, completions, **columns) -> list[float | None]"


class PythonScorer:
    """Calls a function of the user's.

    The function runs in a thread of this process, so that it may use anything that the process holds. A thread cannot
    be ended: one that ran over its limit goes on, and the next batch is refused while it does.

    Args:
        path: `module:function`.
        timeout_seconds: Longest time for one batch.

    Raises:
        ConfigError: There is no such function.
    """

    def __init__(self, path: str, timeout_seconds: float) -> None:
        self._path = path
        self._limit = timeout_seconds
        self._function = load_function(path)
        self._late: threading.Thread | None = None

    def __call__(self, name: str, completions: Sequence[Completion], columns: Columns) -> list[Score]:
        """Score a batch; all of it is 0.0 with reason `timeout` where the function takes too long.

        Raises:
            RunError: The function returned something else than one number or None per completion, or is still busy
                with an earlier batch.
            Exception: Whatever the function raised; SystemExit and its like as RunError.
        """
        if self._late is not None and self._late.is_alive():
            raise RunError(
                f"reward.components.{name}: {self._path} is still busy with an earlier batch that ran over "
                f"{self._limit:g} s; a thread cannot be ended and batches must not pile up; make the function faster, "
                f"or raise reward.components.{name}.timeout_seconds"
            )
        call = _Call(self._function, completions, columns)
        call.start()
        call.join(self._limit)
        if call.is_alive():
            self._late = call
            return [Score(0.0, "timeout")] * len(completions)
        if call.error is not None and not isinstance(call.error, Exception):
            # SystemExit and its like would end the command as if it had done its work.
            raise RunError(
                f"reward.components.{name}: {self._path} raised {call.error!r}; a reward function returns numbers and "
                "ends nothing; take out what raises it, such as sys.exit()"
            ) from call.error
        if call.error is not None:
            call.error.add_note(f"raised by {self._path}, the function of reward.components.{name}")
            raise call.error
        return _to_scores(name, self._path, call.result, len(completions))


class _Call(threading.Thread):
    """One call in a thread that does not keep the process alive."""

    def __init__(self, function: Callable[..., Any], completions: Sequence[Completion], columns: Columns) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._completions = completions
        self._columns = dict(columns)
        self._prompts = self._columns.pop("prompts", None) or [None] * len(completions)
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call, and keep what comes back."""
        try:
            result = self._function(prompts=self._prompts, completions=self._completions, **self._columns)
            self.result = asyncio.run(_wait_for(result)) if inspect.isawaitable(result) else result
        except BaseException as error:  # raised again in the thread that waits
            self.error = error


async def _wait_for(result: Any) -> Any:
    return await result


def _to_scores(name: str, path: str, result: Any, count: int) -> list[Score]:
    """Check the function's answer.

    Raises:
        RunError: It is no list of the right length, or holds something that is no finite number.
    """
    rule = f"a reward function returns one finite number or None per completion ({_SIGNATURE})"
    start = f"reward.components.{name}: {path} returned"
    if isinstance(result, str | bytes) or not hasattr(result, "__len__") or not hasattr(result, "__iter__"):
        raise RunError(f"{start} a {type(result).__name__}; {rule}; return a list")
    values = list(result)
    if len(values) != count:
        raise RunError(f"{start} {len(values)} values for {count} completions; {rule}; correct the function")
    scores = []
    for place, value in enumerate(values):
        number = _to_number(value)
        if value is not None and number is None:
            raise RunError(f"{start} {_show(value)} for completion {place}; {rule}; correct the function")
        scores.append(Score(number, "no_value" if number is None else "value"))
    return scores


def _show(value: Any) -> str:
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits, beyond every float,"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _to_number(value: Any) -> float | None:
    """Return a finite number (NumPy's and zero-dimensional tensors included), or None."""
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, Real):
        # The number in a NumPy or torch scalar; None and text have no such method.
        item = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else None
        if not isinstance(item, Real):
            return None
        value = item
    try:
        number = float(value)
    except OverflowError:  # an integer or a fraction beyond every float
        return None
    return number if math.isfinite(number) else None


# --------------------------------------------------------------------------------------- finding the function


def load_function(path: str) -> Callable[..., Any]:
    """Import `module:function`; the current folder counts as importable.

    Raises:
        ConfigError: There is no such module or function, or importing it raises.
    """
    module_name, _, name = path.partition(":")
    _make_current_folder_importable()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever the user's module raises while it is imported
        raise ConfigError(
            f"{path}: the module {module_name!r} cannot be imported ({type(error).__name__}: {error}); it must be "
            "importable from where the command is started; correct the name, or start from its folder"
        ) from error
    function = vars(module).get(name)
    if not callable(function):
        raise ConfigError(_no_function(path, sorted(key for key, value in vars(module).items() if callable(value))))
    return function


def find_function_fault(path: str) -> str | None:
    """Look for `module:function` without running the module (which may import torch); return what is wrong.

    A name that the module makes in another way than `def`, `class`, `import` or `=` is not found here; such modules
    are left to `load_function`.
    """
    module_name, _, name = path.partition(":")
    spec = _find_spec(module_name)
    if spec is None:
        return (
            f"{path}: there is no module {module_name!r}; it must be importable from where the command is started; "
            "correct the name, or start from its folder"
        )
    source = _python_file(spec)
    if source is None:
        return None
    try:
        tree = ast.parse(source.read_bytes())
    except SyntaxError as error:
        return f"{path}: {source} is not Python ({error.msg}, line {error.lineno}); correct it"
    names = _names_of(tree)
    if name in names or "*" in names or "__getattr__" in names:
        return None
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return _no_function(path, sorted(functions))


def source_file(path: str) -> Path | None:
    """Return the Python file of the module in `module:function`, without running it; None where it is no such file."""
    spec = _find_spec(path.partition(":")[0])
    return None if spec is None else _python_file(spec)


def _find_spec(module_name: str) -> ModuleSpec | None:
    _make_current_folder_importable()
    try:
        return importlib.util.find_spec(module_name)
    except ImportError:  # a package above it is missing
        return None


def _python_file(spec: ModuleSpec) -> Path | None:
    return Path(spec.origin) if spec.origin is not None and spec.origin.endswith(".py") else None


def _no_function(path: str, names: Sequence[str]) -> str:
    module_name, _, name = path.partition(":")
    public = [each for each in names if not each.startswith("_")]
    return (
        f"{path}: the module {module_name!r} has no function {name!r}; it has {', '.join(public) or 'none'}; "
        "correct the name behind the colon"
    )


def _names_of(tree: ast.Module) -> set[str]:
    """Return the names that a module binds anywhere; too many is better than too few."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _make_current_folder_importable() -> None:
    """Put the folder that the command was started in behind everything else, as `python -m` does in front."""
    folder = str(Path.cwd())
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
