"""Which names of the tests mean the program's: worked out from the tests, since the program may define anything.

Runs inside the sandbox, so it imports the standard library only.
"""

from __future__ import annotations

import ast
import builtins
import collections
import copy
import functools
import itertools
import math
import symtable
import sys
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

_TAKEN_FOR_GRANTED = (typing, copy, functools, itertools, collections, math)
#: Longest chain of assignments that a value is followed through.
_MAX_STEPS = 10


def open_names(source: str) -> set[str]:
    """Return the names that some tests use and do not define themselves.

    Raises:
        SyntaxError: It is not Python.
    """
    top = symtable.symtable(source, "tests", "exec")
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    for table in _below(top):
        used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
    return used - {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _below(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _below(child)


def library_of(tree: ast.Module) -> dict[str, Any]:
    """Return those of the used names that are modules of the standard library, or functions that tests rely on."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    found = {name: import_module(name) for name in sorted(used & sys.stdlib_module_names - {"this", "antigravity"})}
    for module in _TAKEN_FOR_GRANTED:
        found |= {name: value for name, value in vars(module).items() if name in used and name[0] != "_"}
    return found


def names_of_program(tree: ast.Module, used: set[str], defined: set[str], library: set[str]) -> set[str]:
    """Return the names that mean the program's; none where it defines nothing that is tested.

    Names of the language and its library stay ours, or a program could give `all` or `isclose` a meaning of its own.
    Only where the tests use no other name of the program, its function is called like one of these (`gcd`, `sum`). It
    is one function: of several the one is meant that is not applied to what another returned, as `abs` is in
    `abs(sqrt(4) - 2) < 1e-6`; a name of the library comes before a builtin. Where several are left, which of them judge
    is open, and none is the program's.

    Args:
        tree: The tests.
        used: Names that they use and do not define.
        defined: Names of the program.
        library: Names of the standard library among those that they use.
    """
    given, language = used & defined, set(vars(builtins))
    if given - library - language:
        return given - library - language
    like_library = (given & library - language) or (given & language)
    tested = like_library - _applied_to_others(tree, like_library)
    return tested if len(tested) == 1 else set()


def _applied_to_others(tree: ast.Module, names: set[str]) -> set[str]:
    """Return those names that are called, or handed to a call, together with what another of them returned."""
    origins: dict[str, set[str]] = {name: {name} for name in names}

    def origin(*nodes: ast.AST) -> set[str]:
        inside = (child for node in nodes for child in ast.walk(node) if isinstance(child, ast.Name))
        return set().union(*(origins.get(child.id, set()) for child in inside))

    bindings = [binding for node in ast.walk(tree) if (binding := _binding(node)) is not None]
    for _ in range(_MAX_STEPS):
        for target, value in bindings:
            for child in ast.walk(target):
                if isinstance(child, ast.Name) and child.id not in names:
                    origins.setdefault(child.id, set()).update(origin(value))
    applied: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            parts = [node.func, *node.args, *(keyword.value for keyword in node.keywords)]
            functions = {part.id for part in parts if isinstance(part, ast.Name) and part.id in names}
            applied |= {name for name in functions if origin(*parts) - {name}}
    # `f(g)` hands a function over and applies it to nothing.
    return applied


def _binding(node: ast.AST) -> tuple[ast.AST, ast.AST] | None:
    """Return what a statement or clause binds, and the expression that the values come from."""
    match node:
        case ast.Assign(targets, value):
            return ast.Tuple(targets), value
        case ast.AnnAssign(target, _, value) if value is not None:
            return target, value
        case ast.AugAssign(target, _, value) | ast.NamedExpr(target, value):
            return target, value
        case ast.For(target, iterated) | ast.comprehension(target, iterated):
            return target, iterated
    return None
