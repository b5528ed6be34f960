"""Which rooms word an answer about a job, and which only label, caption or refuse.

- An answer is said of one job: four words in a row in a function that is given a record of a job,
  or its id. `scheduler/explain/` words them; what only Slurm has, the wing for Slurm words, in
  part by tables of its codes, which are not counted here.
- A refusal is raised, or handed to a function that raises, or made by one of `REFUSES` for whoever
  raises.
- All else are labels, captions, headings and notes on a trace: `LABELS` counts them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXPLAINS = "scheduler/explain"
FREE = ("scheduler/testing",)  # for authors of policies
# records of a job, or of what is predicted of it, whose class does not declare `job_id`
OF_JOBS = {"QueuedJob", "Run", "ExpectedTimes", "StartForecastRow", "Effect"}
# What these return is raised by who asks, answers a request with a problem, or says why a job is
# left out of a replay.
REFUSES = {
    "start_fault", "profiling_fault", "not_there", "refuses", "_not_ours", "_not_eligible",
    "closed_to_user", "_beyond", "_refused", "refusals", "make", "_not_given",
}  # fmt: skip

# They are given a job, and word a heading, a label or a fault of something else.
OF_NO_JOB = {
    "scheduler/policies/pellucid order_terms",
    "scheduler/service/api submit",
    "scheduler/service/api what_if",
    "scheduler/service/log __init__",
    "scheduler/service/pages show",
    "scheduler/service/pages tried",
    "pipeline/commands explain",
    "pipeline/commands _parts",
    "pipeline/evaluate ordered",
    "pipeline/report _lead",
    "pipeline/stages cuts",
}

# Answers outside `scheduler/explain/`.
ANSWERS = {
    "scheduler/slurm": 9,  # what only Slurm has: the wing is asked by one entry point
    "scheduler/slurm/follow": 15,
    "scheduler/slurm/read": 2,
    "scheduler/backends": 3,  # how an attempt ended, as it stands in the log
    "scheduler/backends/local": 5,
    "scheduler/core": 1,  # the fact behind a term, recorded with the decision
}
# Labels, captions, headings and notes by room; the counts may only fall.
LABELS = {
    "scheduler/core": 26,
    "scheduler/policies": 1,
    "scheduler/policies/pellucid": 3,
    "scheduler/service/analyst": 0,
    "scheduler/service/api": 26,
    "scheduler/charts": 5,
    "scheduler/service/pages": 39,
    "scheduler/slurm/twin": 6,
    "pipeline/printed": 0,
    "pipeline/report": 74,
    "pipeline/replay": 50,
}
_PHRASE = re.compile(r"[A-Za-z][a-z']*(?:[,:;]? [a-z']+){3}")  # four words in a row
_DESCRIBES = {"help", "description", "summary", "epilog"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Phrase(NamedTuple):
    room: str
    function: str
    text: str
    kind: str


@cache
def trees() -> dict[str, ast.Module]:
    return {
        str(file.relative_to(ROOT)): ast.parse(file.read_text())
        for folder in ("features", "scheduler", "pipeline")
        for file in sorted((ROOT / folder).rglob("*.py"))
    }


@cache
def records() -> frozenset[str]:
    """The names of the classes with a job's id."""
    return (
        frozenset(
            node.name
            for tree in trees().values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for one in node.body
            if isinstance(one, ast.AnnAssign) and getattr(one.target, "id", "") == "job_id"
        )
        | OF_JOBS
    )


def raising(tree: ast.Module) -> frozenset[str]:
    """The names of a module's functions that raise and return nothing, whatever they are given."""
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, Function) and isinstance(node.body[-1], ast.Raise)
        if not any(isinstance(one, ast.Return) for one in ast.walk(node))
    )


def phrases(path: str, tree: ast.Module) -> Iterator[Phrase]:
    """Yield the phrases of a module, but for docstrings and descriptions of options."""
    room, raises = _room(path), raising(tree)

    def within(node: ast.AST, function: str, kind: str) -> Iterator[Phrase]:
        if _describes(node):
            return
        if isinstance(node, Function):
            function, kind = node.name, _kind(node, room) or kind
        if isinstance(node, ast.Raise) or _called(node) in raises or id(node) in raised:
            kind = "refusal"
        if _is_text(node) and _PHRASE.search(str(getattr(node, "value", ""))):
            yield Phrase(room, function, str(getattr(node, "value", "")), kind)
        for child in ast.iter_child_nodes(node):
            yield from within(child, function, kind)

    raised = {
        id(one) for node in ast.walk(tree) if isinstance(node, Function) for one in _raised(node)
    }
    yield from within(tree, "", "label")


def _describes(node: ast.AST) -> bool:
    """Whether it is a docstring, or describes an option."""
    docstring = isinstance(node, ast.Expr) and _is_text(node.value)
    described = isinstance(node, ast.keyword) and node.arg in _DESCRIBES
    return docstring or described or _called(node) == "setting"


def _kind(function: Function, room: str) -> str:
    if function.name in REFUSES:
        return "refusal"
    if f"{room} {function.name}" in OF_NO_JOB:
        return "label"
    return "answer" if _is_about_a_job(function) else ""


def _raised(function: Function) -> Iterator[ast.AST]:
    """Yield the assignments of names that the function raises."""
    raised = {
        one.id
        for found in ast.walk(function)
        if isinstance(found, ast.Raise)
        for one in ast.walk(found)
        if isinstance(one, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(getattr(one, "id", "") in raised for one in targets):
                yield node


def _room(path: str) -> str:
    return "/".join(path.split("/")[:-1][:3])


def _called(node: ast.AST) -> str:
    called = getattr(node, "func", None)
    return str(getattr(called, "attr", getattr(called, "id", "")))


def _is_about_a_job(function: Function) -> bool:
    taken = function.args
    return any(
        one.arg in ("job", "job_id") or (one.annotation is not None and _names_one(one.annotation))
        for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)
    )


def _names_one(annotation: ast.AST) -> bool:
    words = re.findall(r"\w+", ast.unparse(annotation))
    return bool(records() & set(words))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def found() -> Iterator[Phrase]:
    for path, tree in trees().items():
        if not path.startswith((EXPLAINS, "features", *FREE)):
            yield from phrases(path, tree)


def test_what_is_said_of_a_job_is_said_in_one_room() -> None:
    said = Counter(one.room for one in found() if one.kind == "answer")
    assert said == ANSWERS


def test_labels_become_no_more() -> None:
    there = Counter(one.room for one in found() if one.kind == "label")
    assert {room: there[room] for room in LABELS if there[room] > LABELS[room]} == {}


def test_no_name_that_is_left_out_is_gone() -> None:
    there = {
        name
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, Function)
        for name in (node.name, f"{_room(path)} {node.name}")
    }
    assert there >= REFUSES | OF_NO_JOB


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def f(job_id):\n    return f'{job_id} waits for its turn today'", "answer"),
        ("def f(run: Run | None):\n    return 'it waits for its turn'", "answer"),
        ("def f(made: ExpectedTimes):\n    yield 'starts at once or never'", "answer"),
        ("def f(count):\n    return 'jobs that ran this week'", "label"),
        ("TITLE = 'jobs that ran this week'", "label"),
        ("def f(job_id):\n    raise ValueError('there is no such job')", "refusal"),
        ("def f(job_id):\n    why = 'there is no such job'\n    raise ValueError(why)", "refusal"),
        ("def f(job):\n    refuse('there is no such job')\ndef refuse(x):\n    raise X", "refusal"),
    ],
)
def test_which_words_are_what(source: str, kind: str) -> None:
    assert [one.kind for one in phrases("scheduler/a.py", ast.parse(source))] == [kind]


def test_what_describes_is_no_phrase() -> None:
    source = (
        "def f(job_id):\n    'Return what this job waits for'\n    option(help='what it is for')"
    )
    assert [*phrases("scheduler/a.py", ast.parse(source))] == []


RECORDS = 51  # with a job's id


def test_records_of_jobs_become_no_more() -> None:
    assert len(records() - OF_JOBS) <= RECORDS
