"""Nobody reads back what was put into words: a value beside the words says what a program needs.

Words come out of functions that word an answer, and out of fields that hold such words. They are
followed through assignments, loops, and calls of functions whose name is used once. Reading them
is to search, split or cut them, to look for a part, or to compare them with a text.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("scheduler", "pipeline")
# Readers of words that are none of ours or, the last, of records from before facts had names.
READERS = (
    "scheduler/slurm/read/",
    "pipeline/traces/",
    "scheduler/backends/local/xid.py",  # the kernel's
    "pipeline/commands/logs.py",  # what a job printed
    "scheduler/testing/",  # an author's policy: checks that its words are whole
    "scheduler/core/decisions.py facts_in_words:",
)
# fields of records, that hold words of ours
FIELDS = {
    "inputs", "tree_path", "speed_path", "text", "texts", "lines", "words", "why_not", "detail",
    "dominant", "unavailable", "sentence", "sentences", "note", "told",
}  # fmt: skip
WORDING = {"render", "text", "sentence", "sentence_of", "lines_of", "words"}  # functions
SEARCHES = {"search", "match", "fullmatch", "findall", "finditer", "sub", "split"}
READS = SEARCHES | {
    "startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "rsplit",
    "splitlines", "find", "rfind", "index",
}  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Words:
    """Which names hold words of ours, by function, in all modules given by path."""

    def __init__(self, modules: dict[str, str]):
        self._functions = [
            (path, node)
            for path, source in modules.items()
            for node in ast.walk(ast.parse(source))
            if isinstance(node, Function)
        ]
        named = defaultdict[str, list[Function]](list)
        for _, function in self._functions:
            named[function.name].append(function)
        self._called = {name: found[0] for name, found in named.items() if len(found) == 1}
        self._held = {function: set[str]() for _, function in self._functions}
        known = -1
        while known != (known := sum(map(len, self._held.values()))):
            for _, function in self._functions:
                self._follow(function)

    def read(self) -> Iterator[str]:
        """Yield each place at which words are read: path, function, line and text."""
        for path, function in self._functions:
            for node in ast.walk(function):
                if self._reads(node, function):
                    line = getattr(node, "lineno", 0)
                    yield f"{path} {function.name}: {line} {ast.unparse(node)}"

    def _follow(self, function: Function) -> None:
        held = self._held[function]
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and self._is(node.value, function):
                held |= {name for target in node.targets for name in _names(target)}
            elif isinstance(node, ast.NamedExpr) and self._is(node.value, function):
                held.add(node.target.id)
            elif isinstance(node, ast.For | ast.comprehension) and self._is(node.iter, function):
                held |= set(_names(node.target))
            elif isinstance(node, ast.Call):
                self._pass(node, function)

    def _pass(self, call: ast.Call, function: Function) -> None:
        called = self._called.get(_name(call.func))
        if called is None:
            return
        taken = [one.arg for one in (*called.args.posonlyargs, *called.args.args)]
        if taken[:1] in (["self"], ["cls"]):
            del taken[0]
        given = [*zip(taken, call.args, strict=False)]
        given += [(one.arg, one.value) for one in call.keywords if one.arg]
        self._held[called] |= {name for name, value in given if self._is(value, function)}

    def _is(self, node: ast.AST, function: Function) -> bool:
        """Whether an expression holds words of ours, or several of them."""
        if isinstance(node, ast.Name):
            return node.id in self._held[function]
        if isinstance(node, ast.Attribute):
            return node.attr in FIELDS
        if isinstance(node, ast.Subscript):
            return _is_field(node.slice) or self._is(node.value, function)
        if isinstance(node, ast.Call):
            name = _name(node.func)
            if name in ("reversed", "tuple", "list", "sorted"):
                return any(self._is(one, function) for one in node.args)
            asked = name == "get" and bool(node.args) and _is_field(node.args[0])
            return asked or name in WORDING or name.endswith("_words")
        if isinstance(node, ast.BoolOp):
            return any(self._is(one, function) for one in node.values)
        if isinstance(node, ast.IfExp):
            return self._is(node.body, function) or self._is(node.orelse, function)
        return isinstance(node, ast.Starred) and self._is(node.value, function)

    def _reads(self, node: ast.AST, function: Function) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in READS:
                return False
            searched = node.args if node.func.attr in SEARCHES else ()
            return any(self._is(one, function) for one in (node.func.value, *searched))
        if not isinstance(node, ast.Compare):
            return False
        left = node.left
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.In | ast.NotIn) and self._is(right, function):
                return True
            if isinstance(op, ast.Eq | ast.NotEq):
                texts = [one for one in (left, right) if _is_text(one)]
                if texts and any(self._is(one, function) for one in (left, right)):
                    return True
        return False


def _names(target: ast.AST) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


def _name(called: ast.AST) -> str:
    return str(getattr(called, "attr", getattr(called, "id", "")))


def _is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in FIELDS


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(node.value)


def test_nobody_reads_words_of_ours() -> None:
    modules = {
        str(file.relative_to(ROOT)): file.read_text()
        for room in ROOMS
        for file in (ROOT / room).rglob("*.py")
    }
    assert len(modules) > 300
    assert [one for one in Words(modules).read() if not one.startswith(READERS)] == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(score):\n    return score.inputs and score.inputs[-1].startswith(ASKS)",
        "def f(score):\n    return [g(one) for one in score.inputs]\n"
        "def g(about):\n    return next(k for k in NAMES if about.startswith(k))",
        "def f(start):\n    return any(ASSUMED in step for step in start.tree_path)",
        "def f(step):\n    return WITHHELD in step.text",
        "def f(made, now):\n    when = start_words(made, now)\n    return when.startswith('s')",
        "def f(made):\n    return re.findall('[0-9]+', lines_of(made)[0])",
        "def f(body):\n    return body['detail'] == 'it was cancelled'",
    ],
)
def test_each_way_of_reading_is_found(source: str) -> None:
    assert [*Words({"a.py": source}).read()]


@pytest.mark.parametrize(
    "source",
    [
        "def f(score):\n    return score.facts[-1:] == (Fact.COMMAND,)",
        "def f(row):\n    return row.detail == ''",
        "def f(made):\n    return ' '.join(lines_of(made))",
        "def f(path):\n    return path.name.startswith('run')",
    ],
)
def test_what_reads_no_words_is_none(source: str) -> None:
    assert [*Words({"a.py": source}).read()] == []
