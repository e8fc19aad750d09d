"""Stand-ins for the objects of the program, in the process that judges it.

A stand-in passes on what a test does with the object itself: calls, attributes, `len`, items, iteration, text, truth.
It never hands over a value that the object is compared with, since a value on the other side of a comparison is the
expected one, and an object may claim to equal, contain or exceed everything. So:

- `==`, `<` and arithmetic are passed on between two objects of the program only; with plain data `==` is False, and the
  others are a TypeError;
- `in` looks through the items here;
- methods named as the predicates of built-in types (`issubset`, `startswith`, ...) do not exist on a stand-in.

An exception of the program is raised again if it is a built-in one. StopIteration is not: raised inside
`all(map(...))` it would end the test early, without failing it.

Runs inside the sandbox, so it imports the standard library only.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any

from grpo_exp.rewards.code.plain import NotPlainError, from_plain, to_plain

_HIDDEN = {"issubset", "issuperset", "isdisjoint", "startswith", "endswith", "equals"}
_BINARY = [
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift",
    "lt", "le", "gt", "ge",
]  # fmt: skip
_NOT_RAISED = {"StopIteration", "StopAsyncIteration", "GeneratorExit", "SystemExit", "KeyboardInterrupt"}

#: What a program sends in good faith stays below; beyond it, a value that is too deep or too long is its doing.
_USUAL_DEPTH = 20
_USUAL_ITEMS = 100_000

Ask = Callable[[dict[str, Any]], dict[str, Any]]


class ProgramError(Exception):
    """The program raised an exception of its own."""


class UnsupportedTestError(BaseException):
    """The test does what cannot be done across two processes; no program is to blame."""


class Stage:
    """What the tests know of the program.

    Args:
        ask: Sends a request to the program's sandbox and returns the reply; see `serve`.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._received_depth = 0
        self._received_items = 0

    def request(self, **asked: Any) -> dict[str, Any]:
        """Ask, and raise what the program raised."""
        reply = self._ask(asked)
        if "raised" in reply:
            raise _to_exception(reply["raised"])
        return reply

    def value(self, **asked: Any) -> Any:
        """Ask for a value."""
        return self.read(self.request(**asked)["value"])

    def read(self, data: Any) -> Any:
        """Return plain data, with a stand-in for each object."""
        depth, items = _extent(data)
        self._received_depth = max(self._received_depth, depth)
        self._received_items += items
        return from_plain(data, lambda number: Remote(self, number))

    def write(self, value: Any) -> Any:
        """Encode what a test hands over; stand-ins become their objects again.

        Raises:
            ProgramError: It cannot be handed over, and what the program sent may be why.
            UnsupportedTestError: It cannot be handed over, whatever the program does.
        """
        try:
            return to_plain(value, _number_of)
        except NotPlainError as error:
            if self._received_depth > _USUAL_DEPTH or self._received_items > _USUAL_ITEMS:
                raise ProgramError(str(error)) from error
            raise UnsupportedTestError(str(error)) from error


class Remote:
    """Stand-in for an object of the program; see the module."""

    __slots__ = ("_number", "_stage")

    def __init__(self, stage: Stage, number: int) -> None:
        object.__setattr__(self, "_stage", stage)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the object in the program's sandbox."""
        stage = self._stage
        reply = stage.request(
            do="call",
            object=self._number,
            arguments=stage.write(list(arguments)),
            keywords=stage.write(keywords),
        )
        if reply["value"] is None and "arguments" in reply:
            _change(arguments, stage.read(reply["arguments"]))
        return stage.read(reply["value"])

    def __getattr__(self, name: str) -> Any:
        if name in _HIDDEN or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return self._stage.value(do="get", object=self._number, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._stage.request(do="set", object=self._number, name=name, value=self._stage.write(value))

    def _special(self, name: str, *arguments: Any) -> Any:
        return self._stage.value(
            do="special", object=self._number, name=name, arguments=self._stage.write(list(arguments))
        )

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Remote) and bool(self._special("__eq__", other))

    def __hash__(self) -> int:
        return hash(self._number)

    def __len__(self) -> int:
        return self._special("__len__")

    def __iter__(self) -> Iterator[Any]:
        return iter(self._special("__iter__"))

    def __getitem__(self, key: Any) -> Any:
        return self._special("__getitem__", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._special("__setitem__", key, value)

    def __delitem__(self, key: Any) -> None:
        self._special("__delitem__", key)

    def __contains__(self, item: Any) -> bool:
        return any(item is found or item == found for found in self)

    def __str__(self) -> str:
        return self._special("__str__")

    def __repr__(self) -> str:
        return self._special("__repr__")

    def __bool__(self) -> bool:
        return self._special("__bool__")

    def __int__(self) -> int:
        return self._special("__int__")

    def __float__(self) -> float:
        return self._special("__float__")


def _binary(name: str) -> Callable[[Remote, Any], Any]:
    def operate(self: Remote, other: Any) -> Any:
        return self._special(name, other) if isinstance(other, Remote) else NotImplemented

    return operate


for _word in _BINARY:
    setattr(Remote, f"__{_word}__", _binary(f"__{_word}__"))


def _number_of(value: Any) -> int:
    if isinstance(value, Remote):
        return value._number
    if isinstance(value, BaseException):  # only a call of the program can have raised it
        raise ProgramError(f"a {type(value).__name__} cannot be handed to the program")
    raise NotPlainError(f"a {type(value).__name__} cannot be handed to the program")


def _extent(data: Any) -> tuple[int, int]:
    """Return how deeply some JSON is nested, and how many values are in it; without recursion."""
    depth = items = 0
    level = [data]
    while level:
        inner = [value for value in level if isinstance(value, list | dict)]
        level = [member for value in inner for member in (value if isinstance(value, list) else value.values())]
        depth += bool(inner)
        items += len(level)
    return depth, items


def _change(arguments: tuple[Any, ...], changed: list[Any]) -> None:
    """Repeat what a call did to its arguments in place.

    Only for calls that return None, as such functions do: otherwise a program could change the value that a test
    compares its result with.
    """
    for before, after in zip(arguments, changed, strict=True):
        if type(before) is not type(after):
            continue
        if isinstance(before, list | bytearray):
            before[:] = after
        elif isinstance(before, dict | set):
            before.clear()
            before.update(after)


def _to_exception(names: list[str]) -> BaseException:
    """Return the built-in exception nearest to what the program raised."""
    if names[0] == "NotPlainError":
        return ProgramError("the returned value is too large or too deep")
    if not _NOT_RAISED & set(names):
        for name in names:
            kind = vars(builtins).get(name)
            if isinstance(kind, type) and issubclass(kind, Exception) and kind is not Exception:
                return _build(kind)
    return ProgramError(f"the program raised {names[0]}")


def _build(kind: type[Exception]) -> Exception:
    try:
        return kind("raised by the program")
    except TypeError:  # UnicodeDecodeError and its like want more arguments
        return ProgramError(f"the program raised {kind.__name__}")
