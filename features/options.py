"""The options that a shell script reads from its arguments, by `getopts` or a loop over `$1`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

_LOOP = re.compile(
    r"\s{0,40}while\s{1,4}(?:getopts\s|\[{1,2}\s{1,4}[\"']?\$(?:#|\{#)|\(\(\s{0,4}\$#"
    r"|\[{1,2}\s{1,4}(?:-n\s{1,4})?[\"']?\$\{?1)"
)
_FOR = re.compile(r"\s{0,40}for\s{1,4}\w{1,40}(?:\s{1,4}in\s{1,4}\"?\$[@*]\"?)?\s{0,4}(?:;|$)")
_OPENS = re.compile(r"\s{0,40}(?:for|while|until|select)\s")
_ARM = re.compile(r"\s{0,40}\(?([^\s()][^()]{0,80})\)(.*)$")
_SET = re.compile(r"(?:^|[\s;])([A-Za-z_]\w{0,63})=(\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s;]{0,200})")
_VALUE = re.compile(r"[\"']?\$\{?(?:2|OPTARG)\b(?::-[^}]{0,40})?\}?[\"']?$")
_AFTER = re.compile(r"[\"']?\$\{\w{1,40}#{1,2}[^}]{0,20}=\}[\"']?$")  # ${1#*=}


def with_options(text: str, arguments: Sequence[str]) -> str:
    """Return a script in which the loop that reads its options is replaced by the assignments that
    it makes for these arguments. A loop without a `case` stays."""
    lines, loop, depth = list[str](), list[str](), 0
    for line in text.splitlines():
        if depth:
            loop.append(line)
            depth += bool(_OPENS.match(line))
            depth -= line.strip().startswith("done") or line.rstrip().endswith("; done")
            if not depth and any("esac" in one for one in loop):
                lines += _assigned(loop, arguments)
            elif not depth:
                lines += loop
        elif (_LOOP.match(line) or _FOR.match(line)) and "done" not in line:
            loop, depth = [line], 1
        else:
            lines.append(line)
    return "\n".join([*lines, *loop] if depth else lines)


def _assigned(loop: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """Yield the assignments, `NAME=value`, that a shell loop makes as it reads these arguments.
    Yield `NAME='$?'` where the value is not known."""
    letters = any("getopts" in line for line in loop[:1])
    arms = [*_arms(loop)]
    for i, argument in enumerate(arguments[:200]):
        if letters and not argument.startswith("-"):
            continue
        name = argument[1:2] if letters else argument
        value = argument[2:] if letters and argument[2:] else "".join(arguments[i + 1 : i + 2])
        body = next((body for patterns, body in arms if _fits(name, patterns)), "")
        for variable, text in _SET.findall(body):
            if _VALUE.match(text):
                yield f"{variable}={shlex.quote(value)}"
            elif _AFTER.match(text):
                yield f"{variable}={shlex.quote(argument.partition('=')[2])}"
            elif "$" not in text:
                yield f"{variable}={text}"
            else:
                yield f"{variable}='$?'"  # not known


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(one != "*" and fnmatchcase(name[:80], one[:80]) for one in patterns)


def _arms(loop: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Yield (patterns, body) of each arm of the loop's `case`."""
    patterns, body = list[str](), list[str]()
    for line in loop:
        if not patterns and (found := _ARM.match(line)) and " in" not in found[1]:
            patterns = [one.strip().strip("\"'") for one in found[1].split("|")]
            body, line = [], found[2]
        if patterns:
            body.append(line)
            if ";;" in line or "esac" in line:
                yield patterns, "\n".join(body).partition(";;")[0]
                patterns = []
