"""Draws small changes of recently changed code at random, to see whether the tests would notice.

Each change is one that a slip could make: a comparison reversed, a number one higher, a call left
out. The tests of a change are those that run its line. Where no coverage was recorded, they are the
files of tests that have the module's name or import it. `benchmarks.mutants` plants the changes
(`--sample`).
"""

from __future__ import annotations

import ast
import random
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
CODE = "features", "models", "pipeline", "profiler", "scheduler"
MOST_TESTS = 40  # for each
RARE = 3  # files of tests with a word
MOST_FILES = 6  # likewise, of tests that are chosen by what they import
ROWS = 10  # of a statement at most: the first of them is the one that is measured
ELSEWHERE = "browser", "slurm", "wheel"  # tests that need more than is installed
GENERAL = "benchmarks", "test_growth.py"  # which say of no line what it does, the last in minutes
PAIRS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn),
    (ast.Is, ast.IsNot), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or),
)  # fmt: skip
OTHER = {a: b for pair in PAIRS for a, b in (pair, pair[::-1])}


def sample(since: str, count: int, seed: int) -> list[tuple[str, int, str, str, str]]:
    """Draw `count` changes at random from the lines written since a commit. Return each as (file,
    line, before, after, whole text of the changed file); fewer where fewer are possible.
    """
    found = []
    for file, lines in sorted(_changed(since).items()):
        text = (ROOT / file).read_text()
        found += [(file, *one) for one in mutations(text, lines)]
    return random.Random(seed).sample(found, min(count, len(found)))


def mutations(text: str, lines: set[int]) -> list[tuple[int, str, str, str]]:
    """Return all possible changes of the given lines (numbered from 1) that lie in a function. Each
    is (line, before, after, whole text with the change).
    """
    rows = [row.encode() for row in text.splitlines(keepends=True)]
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    source, out = text.encode(), []
    for node in _in_functions(ast.parse(text)):
        if node.lineno not in lines or node.end_lineno is None or node.end_col_offset is None:
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        for after in _expressions(node) if isinstance(node, ast.expr) else _statements(node):
            changed = source[:begin] + after.encode() + source[end:]
            out.append((node.lineno, source[begin:end].decode(), after, changed.decode()))
    return out


def covering(coverage: CoverageData, file: str, line: int) -> tuple[str, ...]:
    """Return the tests that run a line of a file, by coverage recorded with `--cov-context=test`.
    Tests in a file named like the module come first, then those that run the fewest lines of it.
    """
    measured = next((name for name in coverage.measured_files() if name.endswith(f"/{file}")), "")
    by_line = coverage.contexts_by_lineno(measured)
    first = next((at for at in range(line, line - ROWS, -1) if any(by_line.get(at, ()))), None)
    run = Counter(test for tests in by_line.values() for test in tests if test)
    stem = Path(file).stem.strip("_")

    def place(test: str) -> tuple[bool, int]:
        return stem not in test.partition("::")[0], run[test]

    found = sorted(filter(None, by_line.get(first, ()) if first else ()), key=place)
    names = (test.partition("|")[0].partition("[")[0] for test in found)
    return tuple(dict.fromkeys(n for n in names if n.split("/")[1] not in ELSEWHERE))[:MOST_TESTS]


def near(file: str, line: int, texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the test files that may run a line of a module: those named like the module, then
    those that import it. Where none imports it, also those near the modules that do. Files that
    mention the enclosing function come first, then short ones.

    Args:
        texts: text of every module and test file, by path.
    """
    around = [re.compile(rf"\b{name}\b") for name in _around(texts.get(file, ""), line)]
    tests = [n for n in texts if n.startswith("tests/")]
    there = [n for n in tests if n.split("/")[1] not in (*ELSEWHERE, *GENERAL)]
    found = dict[str, bool]()  # whether it is by its name
    _, imports = _named(file)
    users = [n for n in sorted(texts.keys() - tests) if imports.search(texts[n])]
    for own, imported in map(_named, (file, *users)):
        by_import = {n: Path(n).name == own for n in there if imported.search(texts[n])}
        found |= {n: True for n in there if Path(n).name == own} | by_import
        if by_import:  # the name alone may be another's
            break

    there_too = _with_rare_words(texts.get(file, ""), line, {n: texts[n] for n in there})
    found |= {n: found.get(n, False) for n in there_too}

    def place(name: str) -> tuple[bool, bool, int, int]:
        mentioned = sum(bool(a.search(texts[name])) for a in around)
        return not found[name], name not in there_too, -mentioned, len(texts[name])

    return tuple(sorted(found, key=place))[:MOST_FILES]


def _with_rare_words(text: str, line: int, tests: Mapping[str, str]) -> set[str]:
    """Return the tests that have a word of a line which at most `RARE` of them have."""
    row = "".join(text.splitlines()[line - 1 : line])
    found = set[str]()
    for word in set(re.findall(r"[A-Za-z_]{8,}", row)):
        whole = re.compile(rf"\b{word}\b")
        those = {name for name, its in tests.items() if word in its and whole.search(its)}
        found |= those if len(those) <= RARE else set()
    return found


def _around(text: str, line: int) -> list[str]:
    """Return the names of the classes and functions that enclose a line."""
    kinds = ast.ClassDef, ast.FunctionDef
    there = (node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds))
    return [node.name for node in there if node.lineno <= line <= (node.end_lineno or 0)]


def _named(file: str) -> tuple[str, re.Pattern[str]]:
    """Return the file name of a module's own tests, and a pattern that finds imports of the
    module.
    """
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, stem = module.rpartition(".")
    plain = rf"from {re.escape(package)} import [^\n]*\b{stem}\b"
    return f"test_{stem.strip('_')}.py", re.compile(rf"\b{re.escape(module)}\b|{plain}")


def _changed(since: str) -> dict[str, set[int]]:
    """Map each file to the numbers of its lines that were written since a commit."""
    told = subprocess.run(
        ["git", "diff", "--no-ext-diff", "-U0", since, "--", *(f"{one}/*.py" for one in CODE)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: defaultdict[str, set[int]] = defaultdict(set)
    file = ""
    for row in told.splitlines():
        if row.startswith("+++ "):
            file = row[6:]
        elif row.startswith("@@") and (new := re.search(r"\+(\d+)(?:,(\d+))?", row)):
            first, count = int(new[1]), int(new[2] or 1)
            found[file] |= set(range(first, first + count))
    return {name: lines for name, lines in found.items() if (ROOT / name).is_file()}


def _in_functions(tree: ast.AST, inside: bool = False) -> Iterator[ast.expr | ast.stmt]:
    """Yield the statements and expressions of functions, without annotations and parts of
    formatted strings.
    """
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "args") and isinstance(
            tree, (ast.FunctionDef, ast.AnnAssign, ast.arg)
        ):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or isinstance(node, (ast.JoinedStr, ast.Assert)):
                continue
            if inside and isinstance(node, (ast.expr, ast.stmt)):
                yield node
            yield from _in_functions(node, inside or isinstance(node, ast.FunctionDef))


def _expressions(node: ast.expr) -> Iterator[str]:
    """Yield texts of expressions that a slip could have written instead of this one."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in OTHER:
            yield _text(ast.Compare(left, [OTHER[type(operator)]()], right))  # type: ignore[list-item]
        case ast.BoolOp(operator, values):
            yield _text(ast.BoolOp(OTHER[type(operator)](), values))  # type: ignore[arg-type]
        case ast.BinOp(left, operator, right) if type(operator) in OTHER:
            yield _text(ast.BinOp(left, OTHER[type(operator)](), right))  # type: ignore[arg-type]
        case ast.UnaryOp(ast.Not(), operand):
            yield _text(operand)
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value) | float(value)):
            yield str(value + 1)
        case ast.IfExp(test, body, orelse):
            yield _text(ast.IfExp(test, orelse, body))


def _statements(node: ast.stmt) -> Iterator[str]:
    """Yield texts of statements that a slip could have written instead of this one."""
    match node:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Assign([ast.Attribute()]):
            yield "pass"
        case ast.Return(ast.expr() as value) if ast.unparse(value) != "None":
            yield "return None"
        case ast.Continue():
            yield "break"
        case ast.Break():
            yield "continue"


def _text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"
