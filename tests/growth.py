"""How the work of a pattern, or of any reader of text, grows with the length of what it is given.

For a pattern, texts are made from the pattern itself: for each place where it repeats something,
what leads there, then what is repeated, very often, then what cannot follow. Work is counted in
CPU time of this thread, and only its growth is judged: the same text at 64 times the length may
cost 64 times as much, whatever the machine and whoever shares it.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from math import log
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from time import thread_time
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("features", "models", "profiler", "scheduler", "pipeline")
SHORT, LONG = 1024, 65_536  # characters
# below SHORT: an exponential pattern would never come back from it
SIZES = (12, 16, 20, 24, 32, 64, 256, SHORT, 8 * SHORT, LONG)
FARTHER, SURE = 16, 1.5  # times LONG, where the exponent is no more than this
EXPONENT = 1.1  # of the growth from SHORT to LONG, at most
FLOOR_S = 0.002  # no quadratic reading of 8 * SHORT costs less: it is 3 * 10^7 steps
_ENDS = ("", "\x00\n!")
_USES = {"match", "fullmatch", "search", "split", "findall", "finditer", "sub", "subn"}

Read = Callable[[str], Any]


# --- growth ---------------------------------------------------------------------------------------


def growth(read: Read, make: Callable[[int], str]) -> float:
    """Exponent of the CPU time of `read` over texts of `make` from SHORT to LONG; infinite where
    it grows faster than any power that could be waited for."""
    costs: dict[int, float] = {}
    for before, size in pairwise((0, *SIZES)):
        costs[size] = _cost_s(read, make(size))
        if costs[size] <= FLOOR_S and size >= 8 * SHORT:
            return 0.0
        allowed = 3.0 * size / max(before, 1) * max(costs.get(before, 0.0), FLOOR_S / 20)
        if costs[size] > FLOOR_S and costs[size] > allowed:  # not by chance, and not worth more
            again = min(_cost_s(read, make(size)) for _ in range(2))
            if again > FLOOR_S and again > allowed:
                return log(again / max(costs[before], 1e-6)) / log(size / before)
    for tries in (1, 3, 8):
        much = _least_s(read, make(LONG), tries)
        few = _least_s(read, make(SHORT), 20 * tries)
        found = log(much / few) / log(LONG / SHORT)
        if found <= EXPONENT:
            return found
    if found > SURE:
        return found
    # a short text may fit into a cache where a long one does not, and another program may take it:
    # neither is growth of the work, which shows all the more on longer texts
    for tries in (1, 4):
        much = _least_s(read, make(FARTHER * LONG), 5 * tries)
        longer = log(much / _least_s(read, make(LONG), 20 * tries)) / log(FARTHER)
        found = min(found, longer)
        if found <= EXPONENT:
            break
    return found


def _least_s(read: Read, text: str, tries: int) -> float:
    return min(_cost_s(read, text) for _ in range(tries))


def _cost_s(read: Read, text: str) -> float:
    begun = thread_time()
    read(text)
    return thread_time() - begun


# --- patterns of the source -----------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A pattern of the source, and how it is applied.

    Attributes:
        pattern: None where it is put together while the program runs.
    """

    where: str
    pattern: re.Pattern[Any] | None
    uses: tuple[str, ...]

    def read(self, use: str) -> Read:
        """Applies it to a text."""
        assert self.pattern is not None
        method = getattr(self.pattern, use)
        binary = isinstance(self.pattern.pattern, bytes)

        def apply(text: str) -> Any:
            given = text.encode("latin-1", "replace") if binary else text
            if use in ("sub", "subn"):
                return method(given[:0], given)
            if use == "finditer":
                return deque(method(given), maxlen=0)  # as they come, without holding them
            return method(given)

        return apply


def patterns() -> Iterator[Found]:
    """Every pattern that the packages compile or use, found in the source and in the modules."""
    trees = {
        file: ast.parse(file.read_text()) for p in PACKAGES for file in (ROOT / p).rglob("*.py")
    }
    applied: dict[str, set[str]] = defaultdict(set)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                applied[_last_name(node.func.value)].add(node.func.attr)
    for file, tree in sorted(trees.items()):
        if not any(_is_re(node) for node in ast.walk(tree)):
            continue
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        held = list(_held(module))
        for attribute, pattern in held:
            uses = tuple(sorted(applied[attribute] & _USES)) or ("search", "fullmatch")
            yield Found(f"{name}.{attribute}", pattern, uses)
        known = {(pattern.pattern, pattern.flags) for _, pattern in held}
        yield from _inline(name, module, tree, known)


def _inline(name: str, module: ModuleType, tree: ast.AST, known: set[Any]) -> Iterator[Found]:
    for node in ast.walk(tree):
        if not (
            _is_re(node) and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ):
            continue
        if node.func.attr not in {*_USES, "compile"}:
            continue
        where = f"{name}:{node.lineno}"
        given = ast.Expression(node.args[0])
        try:
            text = eval(compile(given, name, "eval"), dict(vars(module)))
        except NameError:
            yield Found(f"{name}:{ast.unparse(node.args[0])}", None, ())
            continue
        flags = _flags(node)
        uses = (node.func.attr,) if node.func.attr != "compile" else ("search", "fullmatch")
        pattern = text if isinstance(text, re.Pattern) else re.compile(text, flags)
        if node.func.attr == "compile" and (pattern.pattern, pattern.flags) in known:
            continue
        yield Found(where, pattern, uses)


def _flags(call: ast.Call) -> int:
    found = 0
    for node in [*call.args[1:], *(one.value for one in call.keywords)]:
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and part.attr.isupper():
                found |= getattr(re, part.attr, 0)
    return found


def _is_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
    )


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _held(module: ModuleType) -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Patterns in the variables of a module, with the name of what holds them."""
    for name, value in list(vars(module).items()):
        if getattr(value, "__module__", module.__name__) == module.__name__ or not callable(value):
            yield from _within(name, value, 3)


def _within(name: str, value: Any, deep: int) -> Iterator[tuple[str, re.Pattern[Any]]]:
    if isinstance(value, re.Pattern):
        yield name, value
    elif deep and isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from _within(name, one, deep - 1)
    elif deep and isinstance(value, dict):
        for one in value.values():
            yield from _within(name, one, deep - 1)
    elif deep and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _within(field.name, getattr(value, field.name), deep - 1)


# --- texts that hurt ------------------------------------------------------------------------------


def texts(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], str]]:
    """Makers of texts that are hard for a pattern, each for any length."""
    source = pattern.pattern
    source = source.decode("latin-1") if isinstance(source, bytes) else source
    tree = _parser.parse(source, pattern.flags & ~re.UNICODE)
    alphabet = sorted(set(_letters(tree)) | set(" 0a"))
    seen = set()
    for before, body in _repeats(tree, ""):
        one = _sample(body)
        inside = [c for c in alphabet if _accepts(body, c)]
        pumps = [one, *inside, *(a + b for a, b in pairwise(inside)), before + one, one + before]
        pumps += [before + c for c in inside[:4]] + [before + " "]
        for pump in dict.fromkeys(pumps):
            # a character that is none of the repeated ones, so that these are met late
            for lead in dict.fromkeys((before, "", f"{before}b", f"{before}0")):
                for end in _ENDS:
                    if pump and (lead, pump, end) not in seen:
                        seen.add((lead, pump, end))
                        yield _Pumped(lead, pump, end)


@dataclass(frozen=True)
class _Pumped:
    lead: str
    pump: str
    end: str

    def __call__(self, size: int) -> str:
        return self.lead + self.pump * max(1, size // len(self.pump)) + self.end


def _accepts(body: Any, text: str) -> bool:
    """Whether a repeated item may match a character; of more than one item all are tried."""
    (op, av), *more = body
    simple = op in (sre.IN, sre.LITERAL, sre.NOT_LITERAL, sre.ANY)
    return bool(more) or not simple or _fits(op, av, text)


def _fits(op: Any, av: Any, text: str) -> bool:
    if op is sre.ANY:
        return text != "\n"
    if op is sre.LITERAL:
        return chr(av) == text
    if op is sre.NOT_LITERAL:
        return chr(av) != text
    inside = any(_is_in(kind, value, text) for kind, value in av if kind is not sre.NEGATE)
    return inside != any(kind is sre.NEGATE for kind, _ in av)


def _is_in(kind: Any, value: Any, text: str) -> bool:
    if kind is sre.LITERAL:
        return chr(value) == text
    if kind is sre.RANGE:
        return value[0] <= ord(text) <= value[1]
    name = str(value).rpartition("_")[2]
    is_one = {"DIGIT": text.isdigit(), "SPACE": text.isspace()}.get(
        name, text.isalnum() or text == "_"
    )
    return is_one != ("NOT" in str(value))


def _letters(tree: Any) -> Iterator[str]:
    """Characters that a pattern tells apart: each it names, and one of each class."""
    for op, av in tree:
        if op in (sre.LITERAL, sre.NOT_LITERAL):
            yield chr(av)
        elif op is sre.IN:
            for kind, value in av:
                if kind is sre.LITERAL:
                    yield chr(value)
                elif kind is sre.RANGE:
                    yield chr(value[0])
                elif kind is sre.CATEGORY:
                    yield {"DIGIT": "1", "SPACE": "\t"}.get(str(value).rpartition("_")[2], "b")
        else:
            for part in _parts(op, av):
                yield from _letters(part)


def _parts(op: Any, av: Any) -> Sequence[Any]:
    """Trees within an item of a tree, one of which is matched."""
    if op is sre.BRANCH:
        return list(av[1])
    if op is sre.SUBPATTERN:
        return [av[3]]
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [av[2]]
    if op is sre.ATOMIC_GROUP:
        return [av]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [av[1]]
    return []


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, Any]]:
    """What leads to each repeat without a small bound, and what it repeats."""
    for op, av in tree:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT) and av[1] > 64:
            yield before, av[2]
        if op not in (sre.ASSERT, sre.ASSERT_NOT):
            for part in _parts(op, av):
                yield from _repeats(part, before)
        before += _sample([(op, av)])


def _sample(tree: Any) -> str:
    """A text that a tree matches, as short as it goes; lookarounds are left out."""
    found = ""
    for op, av in tree:
        if op is sre.LITERAL:
            found += chr(av)
        elif op is sre.NOT_LITERAL:
            found += "a" if chr(av) != "a" else "b"
        elif op is sre.ANY:
            found += "a"
        elif op is sre.IN:
            found += next((c for c in "a0 1b.-:/A_\t," if _fits(op, av, c)), None) or _first(av)
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            found += _sample(av[2]) * min(int(av[0]), 64)
        elif op not in (sre.ASSERT, sre.ASSERT_NOT):
            found += next((_sample(part) for part in _parts(op, av)), "")
    return found


def _first(items: Any) -> str:
    return next((c for c in map(chr, range(1, 0x3000)) if _fits(sre.IN, items, c)), "")
