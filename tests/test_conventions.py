"""What holds for all tests and all of the source, whatever they are about."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from scheduler.policies import POLICIES

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline", "reproductions")


def test_no_property_test_has_a_deadline() -> None:
    """One profile for all; nobody asks for a time of his own."""
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    own = re.compile(r"\bsettings\([^()]*\bdeadline=(?!None)")
    files = (file for folder in ("tests", *PACKAGES) for file in (ROOT / folder).rglob("*.py"))
    assert [str(file) for file in files if own.search(file.read_text())] == []


def test_the_glossary_names_what_there_is() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text()
    quoted = set(re.findall(r"`([^`]+)`", page))
    classes = {word for word in quoted if re.fullmatch(r"[A-Z][a-z]+([A-Z]\w+)*", word)}
    assert classes
    assert classes <= {node.name for _, node in _nodes(*PACKAGES) if isinstance(node, ast.ClassDef)}
    paths = {word for word in quoted if re.fullmatch(r"[a-z_]+/[\w/.]*", word)}
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    links = set(re.findall(r"\]\(([\w.-]+)\)", page))
    assert [link for link in sorted(links) if not (ROOT / "docs" / link).exists()] == []


MOST_POSITIONAL = 4
POSITIONAL = ROOT / "tests" / "positional_calls.json"  # by folder, how many are left
# Calls of these take as many as there are, or belong to libraries that are called so.
TAKES_ANY = {
    "Index", "Table", "select", "partial", "run_in_threadpool", "zip", "attrgetter", "datetime",
    "op.create_table", "libc.prctl", "out.add_row", "table.add_row", "self.read", "slurm.read",
    "self.localise", "blaming", "joined", "self._note", "_table", "drawn",
}  # fmt: skip


def takes_any(called: str) -> bool:
    return called in TAKES_ANY or called.startswith("nn.")


def test_long_calls_name_their_arguments() -> None:
    """A call of five arguments or more names them. The counts may only fall: write down the new
    one where you mended some."""
    found = Counter(
        file.rpartition("/")[0]
        for file, node in _nodes(*PACKAGES)
        if isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL
        if not any(isinstance(one, ast.Starred) for one in node.args)
        if not takes_any(ast.unparse(node.func))
    )
    left = json.loads(POSITIONAL.read_text())
    more = {room: count - left.get(room, 0) for room, count in found.items()}
    assert {room: count for room, count in more.items() if count > 0} == {}


_LITERAL = ast.Tuple | ast.List | ast.Dict | ast.Set
_COMPOUND = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.With | ast.If


def test_only_tables_keep_a_shape_of_their_own() -> None:
    """`# fmt: skip` stands at a literal: no call, signature or search is squeezed with it."""
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        for line in _squeezed(file.read_text())
    ]
    assert found == []


def _squeezed(text: str) -> Iterator[int]:
    """Yield the numbers of the lines where the formatter is told to keep what is no table."""
    kept = [n for n, line in enumerate(text.splitlines(), 1) if re.search(r"# fmt: skip$", line)]
    nodes = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.stmt)] if kept else []
    for line in kept:
        here = max((n for n in nodes if n.lineno <= line <= _head(n)), key=lambda n: n.lineno)
        if not _is_table(getattr(here, "iter" if isinstance(here, ast.For) else "value", None)):
            yield line


def _head(node: ast.stmt) -> int:
    """Return the last line of a statement, without the block below it."""
    return node.body[0].lineno - 1 if isinstance(node, _COMPOUND) else node.end_lineno or 0


def _is_table(value: object) -> bool:
    if isinstance(value, ast.Call) and len(value.args) == 1 and not value.keywords:
        value = value.args[0]
    return isinstance(value, _LITERAL)


@pytest.mark.parametrize(
    ("text", "squeezed"),
    [
        ("x = (\n    1, 2,\n)  # fmt: skip", []),
        ("x = frozenset((\n    1, 2,\n))  # fmt: skip", []),
        ("x = f(\n    1, 2,\n)  # fmt: skip", [3]),
        ("def f(\n    a, b,\n) -> None:  # fmt: skip\n    pass", [3]),
    ],
)
def test_what_is_a_table(text: str, squeezed: list[int]) -> None:
    assert [*_squeezed(text)] == squeezed


MOST_METHODS, MOST_PARAMETERS = 31, 8


def test_classes_and_signatures_stay_small() -> None:
    """Methods by class, parameters by function; suites of tests and commands have as many as they
    need."""
    found = {
        f"{file}:{node.name}": count
        for file, node in _nodes(*PACKAGES)
        if not file.startswith(("scheduler/testing/", "pipeline/testing/", "pipeline/commands/"))
        if not file.endswith("/command.py")
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for count in [_size(node)]
        if count > (MOST_METHODS if isinstance(node, ast.ClassDef) else MOST_PARAMETERS)
    }
    assert found == {}


def _size(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    if isinstance(node, ast.ClassDef):
        return sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)
    asked = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in asked)


def test_nothing_outside_a_policys_folder_knows_its_name_or_type() -> None:
    """A policy is asked for its capabilities; nobody compares its name, or finds out its type. What
    builds one for tests has to."""
    types = {policy.__name__ for policy in POLICIES.values()}
    found = {
        file
        for file, node in _nodes(*PACKAGES)
        if not file.startswith(("scheduler/policies/", "reproductions/", "scheduler/testing/"))
        if _compares_a_policy(node) or _inspects_a_policy(node, types)
    }
    assert found == set()


def _compares_a_policy(node: ast.AST) -> bool:
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    names = {getattr(one, "attr", getattr(one, "id", "")) for one in sides}
    parts = [one for side in sides for one in getattr(side, "elts", [side])]
    texts = {one.value for one in parts if isinstance(one, ast.Constant)}
    return bool(texts & POLICIES.keys()) and not names & {"backend", "kind"}  # of a cluster


def _inspects_a_policy(node: ast.AST, types: set[str]) -> bool:
    if isinstance(node, ast.ImportFrom):  # its class, not what else its folder has
        inside = (node.module or "").startswith(("scheduler.policies.", "reproductions."))
        return inside and bool(types & {one.name for one in node.names})
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in _INSPECTS:
        return False
    asked, *others = node.args
    name = getattr(asked, "attr", getattr(asked, "id", ""))
    return name.lstrip("_") == "policy" and not any(getattr(o, "id", "") == "str" for o in others)


UNTYPED, PASSED_ON = 22, 182


def test_records_have_types() -> None:
    """A record of known keys is a dataclass, a model or a typed dictionary. `Json` is for documents
    that are handed on as they are; what is looked into has a type."""
    found = Counter[str]()
    for _, node in _nodes("scheduler", "pipeline"):
        if isinstance(node, ast.Subscript) and ast.unparse(node) == "dict[str, Any]":
            found["dict[str, Any]"] += 1
        elif isinstance(node, ast.Name) and node.id == "Json":
            found["Json"] += 1
    assert 0 < found["dict[str, Any]"] <= UNTYPED
    assert 0 < found["Json"] <= PASSED_ON


READS = {
    "scheduler/service/api/problems.py",  # pydantic's sentences, as are the next
    "scheduler/service/settings.py",
    "pipeline/traces/ingestion.py",  # the code before a quarantined row's reason
}


def test_no_sentence_of_ours_is_read_back() -> None:
    """What a program needs of an answer is a value beside its sentence: that may be reworded."""
    found = {file for file, node in _nodes("scheduler", "pipeline") if _reads_a_sentence(node)}
    assert {one for one in found if "/migrations/" not in one} == READS
    templates = [one for folder in PACKAGES for one in (ROOT / folder).rglob("*.html")]
    assert templates
    read = re.compile(rf"\.({'|'.join(SENTENCES)})\.({'|'.join(_READERS)})\(")
    assert [one.name for one in templates if read.search(one.read_text())] == []


_READERS = ("startswith", "endswith", "removeprefix", "partition", "rpartition", "split")
SENTENCES = ("why", "why_not", "detail", "dominant", "unavailable", "sentence", "sentences")


def _reads_a_sentence(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In):
        sides = [node.left, *node.comparators]
        names = {getattr(one, "attr", getattr(one, "id", "")) for one in sides}
        empty = any(isinstance(one, ast.Constant) and not one.value for one in sides)
        return bool(names & set(SENTENCES[1:])) and not empty  # `why` is a code at times
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in _READERS:
        return False
    asked = getattr(node.func, "value", None)
    literals = [one.value for one in node.args if isinstance(one, ast.Constant)]
    words = [
        one
        for one in literals
        if isinstance(one, str) and re.search("^[A-Za-z][a-z]+(: |,? [a-z]+)", one)
    ]
    return getattr(asked, "attr", getattr(asked, "id", "")) in SENTENCES or bool(words)


_INSPECTS = ("isinstance", "issubclass", "getattr", "hasattr")


@cache
def _nodes_of(folder: str) -> list[tuple[str, ast.AST]]:
    return [
        (str(file.relative_to(ROOT)), node)
        for file in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
    ]


def _nodes(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    return chain.from_iterable(map(_nodes_of, folders))


def test_no_reason_steers_a_policy() -> None:
    """What is decided compares obstacles; a reason is named once, at the end. Its own sentences,
    in `decisions.py`, may depend on which it is."""
    found = [
        f"{file}:{node.lineno}"
        for file, node in _nodes("scheduler")
        if file.startswith(("scheduler/core/", "scheduler/policies/"))
        if not file.endswith("core/decisions.py")
        if isinstance(node, ast.Compare | ast.Match)
        for name in ast.walk(node)
        if isinstance(name, ast.Attribute)
        if isinstance(name.value, ast.Name) and name.value.id == "Reason"
    ]
    assert found == []


SHOWN = re.compile(r"(?:^|\.)(?:get|post|put|patch|delete|command|callback|tool|property)\b|prop")


def test_a_docstring_names_what_comes_back() -> None:
    """But of pages, routes, commands and an agent's tools: their users read them; and of
    properties."""
    silent = []
    for file, node in _nodes(*PACKAGES):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node) or ""
        shown = any(SHOWN.search(ast.unparse(one)) for one in node.decorator_list)
        shown |= file == "pipeline/agents.py" and text.startswith(("Say ", "List "))
        if text and not shown and _returns(node) and not re.search("return|yield", text, re.I):
            silent.append(f"{file}:{node.lineno} {node.name}: {text}")
    assert silent == []


def _returns(function: ast.AST) -> bool:
    """Whether a function itself, and not one within it, returns a value."""
    found = False
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            found |= (isinstance(node, ast.Return) and node.value is not None) or _returns(node)
    return found


@pytest.mark.parametrize(
    ("source", "returns"),
    [
        ("def f():\n    return 1", True),
        ("def f():\n    if x:\n        return None", True),
        ("def f():\n    return", False),
        ("def f():\n    def g():\n        return 1", False),
    ],
)
def test_what_an_inner_function_returns_is_its_own(source: str, returns: bool) -> None:
    assert _returns(ast.parse(source).body[0]) is returns
