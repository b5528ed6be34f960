"""The commands that a shell line or script would run, as far as its text shows them.

>>> one_of(["bash", "-c", "cd a && python train.py --epochs 3"])
[Simple(words=['python', 'train.py', '--epochs', '3'], times=1.0)]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from math import inf, prod
from typing import NamedTuple

MOST_CHARACTERS = 50_000  # of a script are read
MOST_COMMANDS = 500  # that are read, however deep
MOST_FILLED = 32  # variables in a word
LONGEST = 4096  # characters of a line that is split, and of a word once it is filled in
DEPTH = 4  # shells within shells
_SHELLS = re.compile(r"(?:^|/)(?:ba|da|z|k|a)?sh$")
_HANDS_ON = re.compile(r"-[a-z]{0,6}c")
_VARIABLE = re.compile(r"\$(?:(\w{1,64})|\{(\w{1,64})(?::?[-=]([^{}$]{0,200}))?\})")
_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,63})=(.*)", re.DOTALL)
_RANGE = re.compile(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}")
_SEQ = re.compile(r"\$\(\s{0,4}seq\s{1,4}(\d{1,6})(?:\s{1,4}(\d{1,6}))?\s{0,4}\)")
_PRODUCT = re.compile(r"\$\(\(\s{0,4}(\d{1,9}(?:\s{0,4}\*\s{0,4}\d{1,9}){0,4})\s{0,4}\)\)")
_COUNTING = re.compile(
    r"for\s{1,4}\(\(\s{0,4}(\w{1,20})\s{0,4}=\s{0,4}(\d{1,6})\s{0,4};\s{0,4}\w{1,20}\s{0,4}(<=?)"
    r"\s{0,4}(\d{1,6})\s{0,4};\s{0,4}(?:\+\+\w{1,20}|\w{1,20}\+\+)\s{0,4}\)\)"
)
_SUBSTITUTED = re.compile(r"\$\([^()]{0,500}\)")  # what a command prints is not known
_REPEATS = "xargs", "parallel"  # run a command for each of what they are given
_ALL = "$@", "$*", "${@}", "${*}"
_OPENS = "then", "else", "do", "{", "!", "time", "exec", "elif", "if"
_CLOSES, _LOOPS = ("done", "fi", "}", "esac"), ("for", "while", "until", "select")


class Simple(NamedTuple):
    """One command of a shell line or script.

    Attributes:
        times: how often it is run; infinite if that is not known.
        otherwise: whether the command stands behind `||` or in an `else`, so that it runs only if
            the command before it fails or does not run.
    """

    words: list[str]
    times: float = 1.0
    otherwise: bool = False


def one_of(command: Sequence[str], variables: Mapping[str, str] | None = None) -> list[Simple]:
    """Return the commands that a command runs: those of the shell line that it hands to a shell
    (`srun bash -c '...'`), otherwise the command itself without its launcher.

    Args:
        variables: values of shell variables that are known.
    """
    return _unwrapped(list(command), dict(variables or {}), 0, [MOST_COMMANDS])


def of_script(
    text: str, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> list[Simple]:
    """Return the commands of a shell script, with known variables filled in.

    Args:
        text: content of the script.
        arguments: arguments that the script is called with.
        variables: values of its variables that are known.
    """
    known = {str(i): word for i, word in enumerate(arguments, 1)} | dict(variables or {})
    return _script(text, known, 0, [MOST_COMMANDS])


def _unwrapped(
    words: list[str], known: dict[str, str], depth: int, budget: list[int]
) -> list[Simple]:
    for i, word in enumerate(words):
        if words[0].endswith("sbatch") and (line := _wrapped(words, i)) is not None:
            return [] if depth >= DEPTH else _script(line, known, depth + 1, budget)
        if i >= len(words) - 2 or not _SHELLS.search(word):
            continue
        at = i + 1
        while at < len(words) and words[at].startswith("-") and not _HANDS_ON.fullmatch(words[at]):
            at += 2 if words[at].endswith("o") else 1
        if at + 1 < len(words) and _HANDS_ON.fullmatch(words[at]):
            if depth >= DEPTH:
                return []
            given = {str(n): one for n, one in enumerate(words[at + 3 :], 1)}
            return _script(words[at + 1], known | given, depth + 1, budget)
    return [Simple(words)]


def _wrapped(words: Sequence[str], i: int) -> str | None:
    """Return the shell line given to sbatch's option `--wrap`, if that option is the word with
    index `i`; otherwise None."""
    if words[i].startswith("--wrap="):
        return words[i].removeprefix("--wrap=")
    return words[i + 1] if words[i] == "--wrap" and i + 1 < len(words) else None


def _script(text: str, known: dict[str, str], depth: int, budget: list[int]) -> list[Simple]:
    """Return the commands of a shell script.

    Args:
        text: content of the script.
        known: values of variables; assignments in the script are added.
        depth: number of scripts around this one.
        budget: one number: how many commands may still be read, also in scripts that this one
            calls. It is counted down, because scripts that call scripts could multiply without end.
    """
    found: list[Simple] = []
    loops: list[float] = []
    branches: list[bool] = []
    for sign, words in _commands(text[:MOST_CHARACTERS]):
        budget[0] -= 1
        if budget[0] < 0:
            break
        _branched(words, branches)
        otherwise = sign == "||" or any(branches)
        plain = _steered(words, loops, known)
        plain = _assigned([one for word in plain for one in _filled_all(word, known)], known)
        if plain:
            times = inf if inf in loops else prod(loops)
            times *= _repeated(plain)
            inner = _unwrapped(plain, known, depth, budget)
            found += [
                Simple(one.words, one.times * times, one.otherwise or otherwise) for one in inner
            ]
    return found


def _branched(words: Sequence[str], branches: list[bool]) -> None:
    """Update `branches` by the control words (`if`, `else`, `fi`) of a command. It holds, for each
    open `if`, whether its `else` has been reached."""
    for word in words:
        if word == "if":
            branches.append(False)
        elif word in ("else", "elif") and branches:
            branches[-1] = True
        elif word == "fi" and branches:
            branches.pop()
        if word not in _OPENS and word not in _CLOSES:
            break


def _steered(words: list[str], loops: list[float], known: dict[str, str]) -> list[str]:
    """Return the words of a shell command after control words such as `then` and `do`; [] if no
    word is left. When a loop begins, append its number of iterations to `loops`; when one ends,
    remove the last entry."""
    while words and words[0] in _OPENS:
        words = words[1:]
    if not words or words[0] in _CLOSES:
        if words[:1] == ["done"] and loops:
            loops.pop()
        return []
    if words[0] in _LOOPS:
        loops.append(_times(words, known))
        known.pop(words[1] if len(words) > 1 else "", None)
        return []
    return words


def _assigned(words: list[str], known: dict[str, str]) -> list[str]:
    """Return the words of a command after its variable assignments, which are added to `known`.
    Return [] for a declaration (`export`, ...)."""
    declares = bool(words) and words[0] in ("export", "declare", "local", "readonly")
    words = words[1:] if declares else words
    while words and (one := _ASSIGNED.fullmatch(words[0])):
        known[one[1]] = one[2]
        words = words[1:]
    return [] if declares else words


def _times(words: Sequence[str], known: Mapping[str, str]) -> float:
    """Return the number of iterations of a loop that begins with `words`; infinite if it cannot be
    read."""
    listed = [_filled(word, known) for word in words[3:]]
    if words[0] != "for" or words[2:3] != ["in"] or any(set(one) & set("$`*?") for one in listed):
        return inf
    count = 0.0
    for word in " ".join(listed).split():
        ends = _RANGE.fullmatch(word)
        count += abs(int(ends[2]) - int(ends[1])) + 1 if ends else 1
    return count


def _repeated(words: Sequence[str]) -> float:
    """Return how often a command runs the command given as its argument: 1 for most, the length of
    the list for one such as `parallel`, which runs it for each item of a list. Infinite if the list
    is not known."""
    if words[0] not in _REPEATS:
        return 1.0
    if ":::" in words:
        return float(max(1, len(words) - words.index(":::") - 1))
    return inf


def _filled_all(word: str, known: Mapping[str, str]) -> list[str]:
    """Return the words that a word expands to: the arguments of the script for `$@`, several words
    if a variable holds options, otherwise one word."""
    if word in _ALL:
        return [known[str(n)] for n in range(1, len(known) + 1) if str(n) in known]
    filled = _filled(word, known)
    if filled != word and filled.startswith("-") and " " in filled:
        return filled.split()
    return [filled]


def _filled(word: str, known: Mapping[str, str]) -> str:
    """Return a word with known variables filled in. An unknown variable becomes its default
    (`${name:-1}`), or stays as it is."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return known.get(name, found[3] if found[3] is not None else found[0])

    if not 0 < word.count("$") <= MOST_FILLED:
        return word
    return _VARIABLE.sub(value, word)[:LONGEST]


def _commands(text: str) -> Iterable[tuple[str, list[str]]]:
    """Yield (sign before it, such as `||` or `;`; words) for each simple command of a script. What
    cannot be read as a command is left out."""
    text = re.sub(r"\\\r?\n", " ", text)
    text = _SEQ.sub(
        lambda found: f"{{{found[1] if found[2] else 1}..{found[2] or found[1]}}}", text
    )
    text = _PRODUCT.sub(lambda found: str(prod(map(int, found[1].split("*")))), text)
    text = _COUNTING.sub(_counted, text)
    text = _SUBSTITUTED.sub("$(_)", text).replace("$(_)", "$_")
    sign = ""
    for line in _whole_lines(text):
        if len(line) > LONGEST:  # shlex takes the square of its length
            sign = ""
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list[str]()
        try:
            for word in lexer:
                if word and set(word) <= set(";&|()"):
                    yield sign, words
                    sign, words = word, list[str]()
                else:
                    words.append(word)
        except ValueError:
            sign = ""
            continue
        yield sign, words
        sign = sign if words == [] else ""  # `a ||` goes on with the next line


def _counted(found: re.Match[str]) -> str:
    """Return a counting loop, `for ((i = 0; i < 10; i++))`, rewritten as a loop over a range: `for
    i in {0..9}`."""
    last = int(found[4]) - (found[3] == "<")
    return f"for {found[1]} in {{{found[2]}..{max(last, int(found[2]))}}}"


def _whole_lines(text: str) -> Iterable[str]:
    """Yield the lines of a script. Lines within one quotation are joined; comments, empty lines and
    here documents (`<<EOF`) are left out."""
    held, until, odd = "", "", 0
    for line in text.splitlines():
        if until:
            until = "" if line.strip() == until else until
            continue
        if not held and (line.lstrip().startswith("#") or not line.strip()):
            continue
        held = f"{held}\n{line}" if held else line
        odd ^= line.count("'") % 2 | 2 * (line.count('"') % 2)
        if odd and len(held) < LONGEST:
            continue
        odd = 0
        if document := re.search(r"<<-?\s{0,4}['\"]?(\w{1,40})", held):
            until = document[1]
        yield held
        held = ""
    if held:
        yield held
