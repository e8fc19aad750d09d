"""Beside the program, in its sandbox: load it, and do with it what the lines ask for.

Nothing here can be trusted, since the program can change all of it; nothing here is a secret.

| request | does |
|---|---|
| `{"do": "find", "name"}` | a function, or a method of a new `Solution` |
| `{"do": "global", "name"}` | a name of the module |
| `{"do": "call", "object", "arguments", "keywords"}` | call an object |
| `{"do": "get", "object", "name"}`, `{"do": "set", ..., "value"}` | an attribute |
| `{"do": "special", "object", "name", "arguments"}` | a special method, such as `__len__` |

The reply is `{"value": ...}` in the form of `plain`, with `arguments` (what became of them) where a call returned None,
or `{"raised": [class names, most special first]}`.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from grpo_exp.rewards.code.lines import Lines
from grpo_exp.rewards.code.plain import NotPlainError, from_plain, to_plain

_MAX_ITERATED = 1_000_000


class _Server:
    """The objects that the other side has numbers for."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._objects: list[Any] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        do: Callable[[dict[str, Any]], dict[str, Any]] = {
            "find": self._find,
            "global": lambda asked: self._reply(vars(self._module)[asked["name"]]),
            "call": self._call,
            "get": lambda asked: self._reply(getattr(self._objects[asked["object"]], asked["name"])),
            "set": self._set,
            "special": self._special,
        }[request["do"]]
        try:
            return do(request)
        except NotPlainError:
            return {"raised": ["NotPlainError"]}
        except BaseException as error:  # SystemExit and KeyboardInterrupt are answers like others
            return {"raised": [kind.__name__ for kind in type(error).__mro__]}

    def _keep(self, value: Any) -> int:
        self._objects.append(value)
        return len(self._objects) - 1

    def _reply(self, value: Any) -> dict[str, Any]:
        return {"value": to_plain(value, self._keep)}

    def _find(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["name"]
        found = vars(self._module).get(name)
        if found is None and "Solution" in vars(self._module):
            solution = vars(self._module)["Solution"]
            if name in dir(solution):
                found = getattr(solution(), name)
        return {"value": {"object": self._keep(found)} if callable(found) else None}

    def _read(self, values: Any) -> Any:
        return from_plain(values, self._objects.__getitem__)

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        arguments, keywords = self._read(request["arguments"]), self._read(request["keywords"])
        value = self._objects[request["object"]](*arguments, **keywords)
        if value is None:
            return {"value": None, "arguments": to_plain(arguments, self._keep)}
        return self._reply(value)

    def _set(self, request: dict[str, Any]) -> dict[str, Any]:
        setattr(self._objects[request["object"]], request["name"], self._read(request["value"]))
        return {"value": None}

    def _special(self, request: dict[str, Any]) -> dict[str, Any]:
        value, name, arguments = self._objects[request["object"]], request["name"], self._read(request["arguments"])
        if name == "__iter__":
            return self._reply(list(itertools.islice(value, _MAX_ITERATED)))
        if name in {"__str__", "__repr__", "__bool__", "__int__", "__float__"}:
            kind = {"__str__": str, "__repr__": repr, "__bool__": bool, "__int__": int, "__float__": float}[name]
            return self._reply(kind(value))
        if name == "__len__":
            return self._reply(len(value))
        return self._reply(getattr(operator, name)(value, *arguments))


def main() -> None:
    """Load `program.py`, say what it holds, and answer until the conversation ends."""
    lines = Lines()
    path = sys.argv[1]
    module = ModuleType("program")
    module.__file__ = path
    sys.modules["program"] = module
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a fast start counts
            code = compile(file.read(), "program.py", "exec")
    except (SyntaxError, ValueError, RecursionError, OverflowError):
        lines.write({"failed": "syntax_error"})
        return
    try:
        exec(code, vars(module))
    except MemoryError:
        lines.write({"failed": "memory_limit"})
        return
    except BaseException:  # SystemExit before the tests is no pass
        lines.write({"failed": "runtime_error"})
        return
    lines.write({"names": sorted(name for name in vars(module) if not name.startswith("__"))})
    server = _Server(module)
    while True:
        lines.write(server.answer(lines.read()))
