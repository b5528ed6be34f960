"""The commands that a shell line or script would run, as far as its text shows them.

>>> [one.words for one in one_of(["bash", "-c", "cd a && python train.py --epochs 3"])]
[['cd', 'a'], ['python', 'train.py', '--epochs', '3']]
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf, prod
from typing import NamedTuple

from features.options import with_options

MOST_CHARACTERS = 50_000  # of a script are read
MOST_COMMANDS = 500  # that are read, however deep
A_COMMAND = 500  # so many characters of a script within a script count as a command
MOST_FILLED = 32  # variables in a word
LONGEST = 4096  # characters of a line that is split, and of a word once it is filled in
# what reading a text of somebody else's writing raises, the slips of the library included
SLIPS = (
    ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError,
    SyntaxError, MemoryError,
)  # fmt: skip
DEPTH = 4  # shells within shells
_TO_LEXER, _FROM_LEXER = str.maketrans("()", "<>"), str.maketrans("<>", "()")
_MOST_SUM = 10**15
_MOST_ITEMS = 1000  # of a sequence in steps
_BLANK = "\ue000"  # a blank within one item of a list
_SHELLS = re.compile(r"(?:^|/)(?:ba|da|z|k|a)?sh$")
_HANDS_ON = re.compile(r"-[a-z]{0,6}c")
_VARIABLE = re.compile(
    r"\$(?:(\w{1,64})|\{(\w{1,64}(?:\[(?:[@*]|\$?\w{1,40})\])?)(?::?[-=]([^{}]{0,200}))?\})"
)
_DEFAULTED = re.compile(r"\$\{(\w{1,64}):?=([^{}$]{0,200})\}")
_SUM = re.compile(r"\$\{=([^{}]{1,80})\}")  # as arithmetic is written for the lexer
_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,63}(?:\[@\])?)=(.*)", re.DOTALL)
_LISTED = re.compile(r"(?<![\w$])([A-Za-z_]\w{0,63})(\+?)=\(([^()]{0,4000})\)")
_FUNCTION = re.compile(
    r"\s{0,40}(?:function\s{1,4}([A-Za-z_]\w{0,63})(?:\s{0,4}\(\s{0,4}\))?"
    r"|([A-Za-z_]\w{0,63})\s{0,4}\(\s{0,4}\))\s{0,4}(?:\{(.*))?$"
)
_OF_A_LIST = re.compile(r"\w{1,64}\[@\]=")
_WITHIN_A_LINE = re.compile(r"(?<=;)\s{1,4}(?=[A-Za-z_]\w{0,63}\s{0,4}\(\)\s{0,4}\{)")
_ENDS_HERE = re.compile(r"[;\s]\}\s{0,4}(?:[;&|]{1,2}|$)")
# the mark of a here document, or what may hold something like it: a quotation, a comment, a sum
_DOCUMENT = re.compile(
    r"(?<!<)<<(?!<)-?\s{0,4}(['\"\\]?)(\w{1,40})['\"]?"
    r"|\\.|'[^']*+'|\"(?:[^\"\\]|\\.)*+\"|(?<![^\s;])#[^\n]*+|\(\([^()]{0,200}\)\)",
    re.DOTALL,
)
# `2>&1` is a redirection, and no job in the background
_TO_DESCRIPTOR = re.compile(r"(?<![\w$])\d{0,2}[<>]&(?:\d{1,2}-?|-)(?![\w])")
_BOTH = re.compile(r"&>{1,2}|>&(?=\s{0,4}[\w./$\"'])")  # output and errors go to a file
_RANGE = re.compile(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}")
_SEQ = re.compile(
    r"(?:\$\(|`|(?<=in )\()\s{0,4}seq(?:\s{1,4}-w)?\s{1,4}(\$?\{?\w{1,20}\}?)"
    r"(?:\s{1,4}(\$?\{?\w{1,20}\}?))?(?:\s{1,4}(\d{1,6}))?\s{0,4}[)`]"
)
_FOREACH = re.compile(r"(?m)^(\s{0,40})foreach\s{1,4}(\w{1,20})\s{0,4}\(([^()]{0,400})\)")  # csh
_ARITHMETIC = re.compile(r"\$\(\(((?:[\w\s$+*/%{}:?-]|\([\w\s$+*/%{}:-]{1,40}\)){1,80})\)\)")
_DEFAULT_OF = re.compile(r"\$\{(\w{1,64}):?-(\d{1,15})\}")
_COUNTING = re.compile(
    r"for\s{0,4}\(\(\s{0,4}(\w{1,20})\s{0,4}=\s{0,4}(\d{1,6})\s{0,4};\s{0,4}\w{1,20}\s{0,4}(<=?)"
    r"\s{0,4}(\$?\{?\w{1,20}\}?)\s{0,4};\s{0,4}(?:\+\+\w{1,20}|\w{1,20}(?:\+\+|\+=1))\s{0,4}\)\)"
)
_COUNTS_UP = re.compile(
    r"\b([A-Za-z_]\w{0,40})=\$\(\(\s{0,4}\$?\w{1,41}\s{0,4}\+\s{0,4}1\s{0,4}\)\)"
    r"|(?:\(\(|let )\s{0,4}([A-Za-z_]\w{0,40})\s{0,4}(?:\+\+|\+=\s{0,4}1)"
)
_SUBSTITUTED = re.compile(r"\$\([^()]{0,500}\)")  # what a command prints is not known
_TAKES = re.compile(  # options of those, with what they are given
    r"-[0rtpxokqu]{0,6}([nNLlIiPjsEdaSC])(.*)|--(max-args|max-replace-args|max-lines|replace"
    r"|max-procs|max-chars|delimiter|arg-file|jobs|delay|joblog|retries|timeout|results|colsep|load"
    r"|memfree|halt|sshlogin|workdir|wd|tmpdir|env|tagstring)(?:=(.*))?",
    re.DOTALL,
)
_REPEATS = "xargs", "parallel"  # run a command for each of what they are given
_DECLARES = "export", "declare", "local", "readonly", "typeset"
_ALL = "$@", "$*", "${@}", "${*}"
_OPENS = "then", "else", "do", "{", "!", "time", "exec", "elif", "if"
_TESTS = ["["], ["[["], ["test"]
_SAY = "echo", "printf"  # what is handed to them is not run
_WINDOWS = "new-session", "new", "new-window", "neww", "split-window", "splitw"  # of tmux
_DETACH = "tmux", "screen"  # what runs in them does not keep the next command waiting
_HANDED = "su", "runuser", "script", "flock"  # run what stands behind their -c
_FIXED = "#"  # among the variables: arguments keep their places
_ARGUMENT = re.compile(r"\$\{?\d")
_LOCAL = re.compile(r"\blocal\s{1,4}(?:-\w{1,8}\s{1,4})?([A-Za-z_]\w{0,63})")
# what submits a job, and its options that wait until it is over
_SUBMITS = {"sbatch": {"-W", "--wait"}, "qsub": {"-sync"}, "bsub": {"-K"}}
_PASSES = ["shuf"], ["sort"], ["tac"], ["tee"]  # print as many lines as they are given
_SSH_VALUES = re.compile(r"-[a-zA-Z]{0,8}[BbcDEeFIiJLlmOopQRSWw]$")  # another word belongs to it
_CLOSES, _LOOPS = ("done", "fi", "}", "esac", "end"), ("for", "while", "until", "select")


class Simple(NamedTuple):
    """One command of a shell line or script.

    Attributes:
        times: how often it is run; infinite if that is not known.
        otherwise: whether the command stands behind `||` or in an `else`, so that it runs only if
            the command before it fails or does not run.
        written: text of the here document that the command is given, and writes to a file.
        beside: number of the group of jobs that run at the same time (`&`, a window of tmux, and
            what runs in front meanwhile), from 1; each `wait` begins another. 0: nothing runs
            beside it.
        job: number of its job, whose commands run one after the other. 0: the one in front.
    """

    words: list[str]
    times: float = 1.0
    otherwise: bool = False
    written: str | None = None
    beside: int = 0
    job: int = 0


def one_of(command: Sequence[str], variables: Mapping[str, str] | None = None) -> list[Simple]:
    """Return the commands that a command runs: those of the shell line that it hands to a shell
    (`srun bash -c '...'`), otherwise the command itself, its launcher included. If that line cannot
    be read, return the command itself.

    Args:
        variables: values of shell variables that are known.
    """
    try:
        found = _unwrapped(list(command), dict(variables or {}), 0, [MOST_COMMANDS, 1, 0])
        times = _repeated(command, [], {}) if ":::" in command else 1.0
        return [one._replace(times=one.times * times) for one in found]
    except SLIPS:
        return [Simple(list(command))]


def of_script(
    text: str, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> list[Simple]:
    """Return the commands of a shell script, with known variables filled in; [] if it cannot be
    read.

    Args:
        text: content of the script.
        arguments: arguments that the script is called with.
        variables: values of its variables that are known.
    """
    known = {str(i): word for i, word in enumerate(arguments, 1)} | dict(variables or {})
    if "shift" not in text and "set --" not in text:
        known[_FIXED] = ""
    try:
        text = with_options(text[:MOST_CHARACTERS], arguments)
        return _script(text, known, 1, [MOST_COMMANDS, 1, 0])
    except SLIPS:
        return []


def _unwrapped(
    words: list[str], known: dict[str, str], depth: int, budget: list[int]
) -> list[Simple]:
    if (line := _handed(words)) is not None:
        return [] if depth >= DEPTH else _script(line, known, depth + 1, budget)
    if words and (body := known.get(f"{words[0]}()")) is not None and depth < DEPTH:
        return _called(body, words, known=known, depth=depth, budget=budget)
    if depth and words and words[0] in _SUBMITS and not _SUBMITS[words[0]] & {*words}:
        return []  # what a script submits runs elsewhere
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


def _called(
    body: str, words: Sequence[str], known: dict[str, str], depth: int, budget: list[int]
) -> list[Simple]:
    """Return the commands of a function that a script calls. What it assigns stays assigned in
    `known`, apart from its local variables and arguments.
    """
    outer = {name: value for name, value in known.items() if not name.isdigit()}
    inner = outer | {str(n): one for n, one in enumerate(words[1:], 1)}
    commands = _script(body, inner, depth + 1, budget)
    local = _LOCAL.findall(body)
    for name in (outer.keys() | inner.keys()) - set(local):
        if name in inner and not name.isdigit():
            known[name] = inner[name]
        elif name not in inner:
            known.pop(name, None)
    return commands


def _handed(words: Sequence[str]) -> str | None:
    """Return the shell line that a command runs elsewhere or as somebody else (`ssh host '...'`,
    `su -c '...'`, `eval`). Return None for another command.
    """
    name = words[0].rpartition("/")[2] if words else ""
    if name == "eval":
        return " ".join(words[1:])
    if name == "ssh":
        at = 1
        while at < len(words) and words[at].startswith("-"):
            at += 2 if _SSH_VALUES.match(words[at]) else 1
        return " ".join(words[at + 1 :])
    if name == "parallel":
        return _for_each(words)
    if name == "tmux":
        return _typed(words)
    if name in _HANDED:
        named = 0  # flock's own -c stands behind the lock
        for i, word in enumerate(words[1:-1], 1):
            named += not word.startswith("-") and not re.fullmatch(r"[\d.]{1,9}", word)
            if word == "--" or (name == "flock" and named > 1):
                return None
            if _HANDS_ON.fullmatch(word) or word == "--command":
                return words[i + 1]
    return None


def _for_each(words: Sequence[str]) -> str | None:
    """Return the shell line that `parallel` runs for each item, if it is given as one word."""
    for word in words[1:]:
        if word.startswith(":::"):
            return None
        if " " in word and not word.startswith("-"):
            return word
    return None


def _typed(words: Sequence[str]) -> str | None:
    """Return the shell line that a command of tmux runs in windows or types into them, those of
    several windows side by side; None if it does neither."""
    windows, parts = list[str](), [list[str]()]
    for word in words[1:]:
        parts[-1] += [plain] if (plain := word.rstrip(";")) else []
        parts += [[]] if word.endswith(";") else []
    for does, *rest in filter(None, parts):
        typed = _keys(rest) if does in _WINDOWS or does in ("send-keys", "send") else ""
        windows += [typed] if typed else []
    if len(windows) > 1:
        return "".join(f"({one}\n) &\n" for one in windows)
    return windows[0] if windows else None


def _keys(words: Sequence[str]) -> str:
    """Return what a command of tmux runs or types, by its arguments."""
    typed, at = list[str](), 0
    while at < len(words) and words[at] not in ("Enter", "C-m"):
        option = words[at].startswith("-")
        typed += [] if option else [words[at]]
        at += 2 if option and re.search(r"[ctsnxyFe]$", words[at]) else 1
    return " ".join(typed)


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
        budget: three numbers, also for the scripts that this one calls: how many commands may
            still be read, counted down, because scripts that call scripts could multiply without
            end; the number of the group of jobs that now run side by side (see `Simple`); and how
            many jobs have begun.
    """
    found: list[Simple] = []
    loops: list[float] = []
    branches: list[_Branch] = []
    piped = list[str]()
    begun = list[int]()  # how many commands were found before each loop
    tested = False  # what follows `&&` or `||` is run only if a test says so
    apart = list[tuple[int, dict[str, str]]]()
    jobs = _Jobs(found, budget)
    budget[0] -= len(text) // A_COMMAND if depth > 1 else 0  # a function is read at each call
    text, functions = _functions(text[:MOST_CHARACTERS] if budget[0] >= 0 else "")
    known |= {f"{one or two}++": "" for one, two in _COUNTS_UP.findall(text)}
    known |= functions
    for sign, words, document in _commands(text):
        budget[0] -= 1
        if budget[0] < 0:
            break
        jobs.reads(sign, words, loops)
        _set_apart(sign, known, apart, depth=len(branches))
        at = begun[-1] if loops and begun else len(found)
        passes = inf if branches or "-n" in words else prod(loops)
        budget[1] = _waits(words, found, at, group=budget[1], passes=passes)
        words = _branched(sign, words, branches, known)
        if any(branch.skips for branch in branches):
            continue
        otherwise = sign == "||" or any(branch.otherwise for branch in branches)
        plain, condition = _steered(words, loops, known)
        jobs.closes(begun[len(loops) :])
        begun = [*begun[: len(loops)], *[len(found)] * (len(loops) - len(begun))]
        if plain == ["break"] and loops and found[begun[-1] :] and not tested:
            if sign == "&&" or words[0] == "then":  # it is run until it succeeds
                once = [one._replace(times=one.times / loops[-1]) for one in found[begun[-1] :]]
                found[begun[-1] :] = once if loops[-1] < inf else found[begun[-1] :]
            continue
        known |= {name: known.get(name, of) for w in plain for name, of in _DEFAULTED.findall(w)}
        outside = dict(known) if tested and sign in ("&&", "||") else {}
        plain = _assigned([one for word in plain for one in _filled_all(word, known)], known)
        known |= {name: _either(name, {of, known[name]}) for name, of in outside.items()}
        tested = plain[:1] in _TESTS or (tested and sign in ("&&", "||"))
        before = piped if sign == "|" else []
        piped = before if before and plain[:1] in _PASSES else plain
        if plain and plain[0] not in _SAY:
            around = loops[:-1] if condition else loops
            if 0 in around:
                continue
            times = inf if inf in around else prod(around)
            times *= _repeated(plain, before, known)
            inner = _unwrapped(plain, known, depth, budget)
            if plain[0].rpartition("/")[2] in _DETACH:
                times, inner = 1.0, jobs.begun(inner)
            if document is not None and not (depth and plain[0] in _SUBMITS):
                document = _document(document, known)
                inner = _given(plain, document, known=known, depth=depth, budget=budget) or inner
            jobs.adds(
                one._replace(times=one.times * times, otherwise=one.otherwise or otherwise)
                for one in inner
            )
    return found


def _set_apart(
    sign: str, known: dict[str, str], apart: list[tuple[int, dict[str, str]]], depth: int
) -> None:
    """Take back what was assigned within `( ... )` where that ends.

    Args:
        sign: before the next command.
        known: values of variables, changed in place.
        apart: for each `(` that is open, how many branches were open there, and what was known.
        depth: how many branches are open now. A `)` behind a pattern of `case` ends nothing.
    """
    now: dict[str, str] | None = None  # one copy of what is known is enough for `((((`
    for one in sign:
        if one == "(":
            now = dict(known) if now is None else now
            apart.append((depth, now))
        elif one == ")" and apart and apart[-1][0] == depth:
            now = apart.pop()[1]
    if now is not None and ")" in sign:
        known.clear()
        known |= now


@dataclass
class _Jobs:
    """The commands of a script that were found so far, and which of them run side by side.

    Attributes:
        budget: as of `_script`.
        opened: how many commands were found before each `(` and `{` that is open.
        last: how many were found before the last pipeline, or the `( ... )` or loop that has just
            ended: what a `&` behind it runs in the background.
    """

    found: list[Simple]
    budget: list[int]
    opened: list[int] = field(default_factory=list)
    last: int = 0

    def reads(self, sign: str, words: Sequence[str], loops: Sequence[float]) -> None:
        """Take in a command that is reached, and the sign before it.

        Args:
            loops: how often the loops around it pass.
        """
        for one in [*sign, *words[:1]]:
            if one in ("(", "{"):
                self.opened.append(len(self.found))
            elif one in (")", "}") and self.opened:
                self.last = self.opened.pop()
        plain = sign.strip("()")
        if plain == "&":
            self.found[self.last :] = self.begun(self.found[self.last :], prod(loops))
        goes_on = sign != "" and plain in ("", "|", "&&", "||") and "(" not in sign
        if not goes_on and words[:1] != ["}"]:
            self.last = len(self.found)

    def closes(self, loops: Sequence[int]) -> None:
        """Take in that loops end, before which so many commands were found."""
        self.last = next(iter(loops), self.last)

    def begun(self, commands: Sequence[Simple], around: float = 1.0) -> list[Simple]:
        """Return commands marked as a job that begins, as often as it runs in one pass of the loops
        around it. Those of another job are returned as they are.

        Args:
            around: how often these loops pass.
        """
        self.budget[2] += 1
        beside, job = self.budget[1:]
        each = [one.times / around if around < inf else 1.0 for one in commands]
        return [
            one if one.job else one._replace(times=times, beside=beside, job=job)
            for one, times in zip(commands, each, strict=True)
        ]

    def adds(self, commands: Iterable[Simple]) -> None:
        """Add commands that were found: in front of the jobs that run, if there are any."""
        group = self.budget[1]
        runs = any(one.beside == group for one in self.found)
        self.found += [
            one._replace(beside=group) if runs and not one.beside else one for one in commands
        ]


def _waits(words: Sequence[str], found: list[Simple], at: int, group: int, passes: float) -> int:
    """Return the group of the jobs that follow a command. If it waits for those at its side, it
    does so in each pass of the loop whose commands begin at an index of `found`.

    Args:
        passes: how often the loop passes.
    """
    if [word for word in words if word not in _OPENS][:1] != ["wait"]:
        return group
    found[at:] = [
        one._replace(times=one.times * passes) if one.beside == group and one.job else one
        for one in found[at:]
    ]
    return group + 1


def _document(text: str, known: Mapping[str, str]) -> str:
    """Return a here document with known variables filled in. Its first line is its mark, quoted if
    nothing is to be filled in."""
    mark, _, text = text.partition("\n")
    if mark.startswith(("'", '"', "\\")):
        return text
    lines = (line.split("\\$") for line in text.split("\n"))  # no such sign begins a variable
    return "\n".join("$".join(_filled(part, known) for part in parts) for parts in lines)


def _given(
    words: list[str], document: str, known: dict[str, str], depth: int, budget: list[int]
) -> list[Simple]:
    """Return what a command does with a here document: a shell or `sbatch` without a script, and
    `ssh`, run it (`bash <<EOF`), another writes it (`cat > a.yaml <<EOF`)."""
    name = words[0].rpartition("/")[2]
    files = [one for one in words[1:] if "." in one and not one.startswith("-")]
    shells = any(_SHELLS.search(one) for one in words) and not files
    if shells or name == "ssh" or (name == "sbatch" and not files):
        return [] if depth >= DEPTH else _script(document, known, depth + 1, budget)
    return [Simple(words, written=document)]


@dataclass
class _Branch:
    """An `if` or `case` that is open while a script is read.

    Attributes:
        before: values of the variables where it began.
        subject: what a `case` compares; None for an `if`.
        arms: values of the variables at the end of each of its arms.
        otherwise: an arm other than the first was reached.
        complete: one of its arms is run whatever holds (`else`, `*`).
        patterns: those of the arm of a `case` that is to begin; None within an arm.
        skips: the arm is not run.
        taken: the arm that is run of a `case` whose subject is known was reached.
    """

    before: dict[str, str]
    subject: str | None = None
    arms: list[dict[str, str]] = field(default_factory=list)
    otherwise: bool = False
    complete: bool = False
    patterns: list[str] | None = None
    skips: bool = False
    taken: bool = False

    def ends_arm(self, known: dict[str, str]) -> None:
        """Keep the variables of an arm that ends, and set `known` back to those before it."""
        if not self.skips:
            self.arms.append(dict(known))
        known.clear()
        known.update(self.before)

    def ends(self, known: dict[str, str]) -> None:
        """Set in `known` the variables on which the arms agree. Those on which they do not stay as
        they are written, `$name`.
        """
        if self.patterns is None:
            self.ends_arm(known)
        surely = self.complete or self.taken
        ways = self.arms if surely else [*self.arms, self.before]
        for name in {name for arm in ways for name in arm}:
            values = {arm[name] for arm in ways if name in arm}
            known[name] = _either(name, values)

    def reads(self, sign: str, words: Sequence[str], known: dict[str, str]) -> bool:
        """Take in a command of a `case`, and the sign before it. Return whether it is one of an
        arm or the end, and no pattern.
        """
        if self.patterns is None and sign.startswith(";;"):
            self.ends_arm(known)
            self.patterns, self.skips = [], False
        if self.patterns is None:
            return True
        if sign == ")":
            self.begins_arm()
            return True
        if words[:1] != ["esac"]:
            self.patterns += words
        return words[:1] == ["esac"]

    def begins_arm(self) -> None:
        """Begin the arm of a `case` whose patterns were read."""
        patterns, self.patterns = self.patterns or [], None
        subject = self.subject or "$"
        self.otherwise = bool(self.arms)
        if "$" in subject:
            self.complete = self.complete or "*" in patterns
            return
        fits = any(fnmatchcase(subject[:80], one[:80]) for one in patterns)
        self.skips = self.taken or not fits
        self.taken = self.taken or fits
        self.otherwise = False


def _either(name: str, values: Collection[str]) -> str:
    """Return the value of a variable that has one of several: that which they begin with, if the
    others add words to it, otherwise `$name`, as it is written.
    """
    least = min(values, key=len)
    return least if all(f"{one} ".startswith(f"{least} ") for one in values) else f"${name}"


def _branched(
    sign: str, words: list[str], branches: list[_Branch], known: dict[str, str]
) -> list[str]:
    """Update `branches` by a command: what opens, changes or closes an `if` or `case`. Return the
    words of the command that are run.
    """
    if branches and branches[-1].subject is not None and not branches[-1].reads(sign, words, known):
        return []
    for i, word in enumerate(words):
        if word == "if":
            branches.append(_Branch(dict(known)))
        elif word == "case" and words[i + 2 : i + 3] == ["in"]:
            subject = words[i + 1]  # arguments may have been shifted
            if not _ARGUMENT.search(subject) or _FIXED in known:
                subject = _filled(subject, known)
            branches.append(_Branch(dict(known), subject, patterns=words[i + 3 :]))
            return []
        elif word in ("else", "elif") and branches and branches[-1].subject is None:
            branches[-1].ends_arm(known)
            branches[-1].otherwise, branches[-1].complete = True, word == "else"
        elif word in ("fi", "esac") and branches:
            branches.pop().ends(known)
        if word not in _OPENS and word not in _CLOSES:
            break
    return words


def _functions(text: str) -> tuple[str, dict[str, str]]:
    """Return a script without the functions that it defines, and these: {name with `()`: body}."""
    lines, bodies = list[str](), dict[str, str]()
    name, body = "", list[str]()
    for line in _each_function(text):
        if name:
            if line.lstrip().startswith("}"):
                bodies[f"{name}()"] = "\n".join(body)
                name = ""
                lines += [rest] if (rest := line.lstrip()[1:].lstrip(" ;")) else []
            elif line.strip() != "{":
                body.append(line)
            continue
        found = _FUNCTION.match(line) if "(" in line or "function" in line else None
        if found is None:
            lines.append(line)
        elif ends := _ENDS_HERE.search(found[3] or ""):
            bodies[f"{found[1] or found[2]}()"] = found[3][: ends.start() + 1]
            lines.append(found[3][ends.end() :])
        else:
            name, body = found[1] or found[2], [found[3] or ""]
    return (text, {}) if name else ("\n".join(lines), bodies)  # one that never ends is none


def _each_function(text: str) -> Iterator[str]:
    """Yield the lines of a script. A function that is defined within a line begins a new one."""
    for line in text.splitlines():
        if len(line) <= LONGEST and "()" in line:
            yield from _WITHIN_A_LINE.sub("\n", line).split("\n")
        else:
            yield line


def _steered(words: list[str], loops: list[float], known: dict[str, str]) -> tuple[list[str], bool]:
    """Return the words of a shell command after control words such as `then` and `do`, [] if no
    word is left, and whether it is the condition of the loop that begins. When a loop begins,
    append its number of iterations to `loops`; when one ends, remove the last entry.
    """
    while words and words[0] in _OPENS:
        words = words[1:]
    if not words or words[0] in _CLOSES:
        if words[:1] in (["done"], ["end"]) and loops:
            loops.pop()
        return [], False
    if words[0] in _LOOPS:
        loops.append(_times(words, known))
        if words[0] in ("for", "select") and len(words) > 1:
            known[words[1]] = f"${words[1]}"  # it has a value, another in each pass
        until = words[0] == "until" or words[:2] == ["while", "!"]  # it is run until it succeeds
        return (words[1 + (words[1:2] == ["!"]) :] if until else []), until
    return words, False


def _assigned(words: list[str], known: dict[str, str]) -> list[str]:
    """Return the words of a command after its variable assignments, which are added to `known`.
    Return [] for a declaration (`export`, ...)."""
    declares = bool(words) and words[0] in _DECLARES
    if words[:1] in (["set"], ["setenv"]):  # of csh and fish
        name, *value = [one for one in words[1:] if not one.startswith("-")] or [""]
        if name.isidentifier() and value:
            known[name] = " ".join(value[value[0] == "=" :])
        return words if name == "" else []
    words = [one for one in words[1:] if not one.startswith("-")] if declares else words
    while words and (one := _ASSIGNED.fullmatch(words[0])):
        known[one[1]] = one[2]
        words = words[1:]
    return [] if declares else words


def _times(words: Sequence[str], known: dict[str, str]) -> float:
    """Return the number of iterations of a loop that begins with `words`; infinite if it cannot be
    read."""
    if words[0] == "while" and len(words) > 5 and words[1] in ("[", "[["):
        name, sign, end = words[2].strip("${}"), words[3], _filled(words[4], known)
        begin = known.get(name, "")
        known |= {name: f"${name}"} if name.isidentifier() else {}
        known_ends = end.isdecimal() and (begin or "0").isdecimal()
        if f"{name}++" in known and sign in ("-lt", "-le") and known_ends:
            return float(max(1, int(end[:9]) - int(begin[:9] or 0) + (sign == "-le")))
    listed = _filled_items(words[3:], known)
    if words[0] != "for" or words[2:3] != ["in"] or any(set(one) & set("$`*?") for one in listed):
        return inf
    return _length(listed, known)


def _filled_items(items: Iterable[str], known: Mapping[str, str]) -> list[str]:
    return [_filled(one, known) for one in items]


def _length(items: Iterable[str], known: Mapping[str, str]) -> float:
    """Return the number of items of a list, its ranges (`{1..5}`) and variables filled in."""
    count = 0.0
    for word in " ".join(_filled_items(items, known)).split():
        if set(word) & set("$`*?"):
            return inf
        ends = _RANGE.fullmatch(word)
        count += abs(int(ends[2]) - int(ends[1])) + 1 if ends else 1
    return count


def _repeated(words: Sequence[str], before: Sequence[str], known: Mapping[str, str]) -> float:
    """Return how often a command runs the command given as its argument: 1 for most, the length of
    the list for one such as `parallel`, which runs it for each item of a list. Infinite if the list
    is not known.

    Args:
        before: words of the command whose output it is given, [] if it is given none.
    """
    if words[0] not in _REPEATS:
        return 1.0
    together = _together(words)
    if together not in ("", "1", "line"):
        return inf
    if ":::" in words:
        lists, linked = list[list[str]](), "--link" in words or "--xapply" in words
        for word in words[words.index(":::") :]:
            if word in (":::", ":::+"):
                lists.append([])
                linked = linked or word == ":::+"
            else:
                lists[-1].append(word)
        counts = [_length(one, known) for one in lists]
        return max(1.0, max(counts) if linked else prod(counts))
    if words[0] == "xargs" and not together:
        return 1.0 if before[:1] in (["seq"], ["echo"]) else inf
    if before[:1] == ["seq"] and all(one.isdecimal() for one in before[1:]):
        ends = [1, *map(int, before[1:])][-2:] if len(before) < 4 else [0]
        return float(max(1, ends[-1] - ends[0] + 1)) if len(ends) == 2 else inf
    if before[:1] in (["echo"], ["printf"]) and not any(set(one) & set("$`*?") for one in before):
        if together == "line" and before[0] == "echo":
            return inf if any("\\" in one or "\n" in one for one in before) else 1.0
        items = [one for one in before[1:] if not one.startswith("-") and "%" not in one]
        return max(1.0, _length(items, known))
    return inf


def _together(words: Sequence[str]) -> str:
    """Return how many items `xargs` or `parallel` hands to each command, as its options say: a
    number, "line" for those of one line, "" if they do not say."""
    found, at = "", 1
    while at < len(words) and words[at].startswith("-"):
        word, at = words[at], at + 1
        option = _TAKES.fullmatch(word)
        if option is None:
            continue
        letter, value = option[1] or option[3], option[2] or option[4]
        if not value and letter not in ("i", "l", "replace", "max-lines"):
            value, at = "".join(words[at : at + 1]), at + 1
        if letter in ("n", "N", "max-args", "max-replace-args"):
            found = value
        elif letter in ("L", "l", "max-lines"):
            found = "line" if value in ("", "1") else value
        elif letter in ("I", "i", "replace") and not found:
            found = "line"
    return found


def _filled_all(word: str, known: Mapping[str, str]) -> list[str]:
    """Return the words that a word expands to: the arguments of the script for `$@`, several words
    if a variable holds options or a list, otherwise one word."""
    if word in _ALL:
        return [known[str(n)] for n in range(1, len(known) + 1) if str(n) in known]
    filled = _filled(word, known)
    if _OF_A_LIST.match(word):
        return [filled]
    if filled != word and _VARIABLE.fullmatch(word) and ("[" in word or _holds_words(filled)):
        return [one.replace(_BLANK, " ") for one in filled.split()]
    return [filled.replace(_BLANK, " ")]


def _holds_words(text: str) -> bool:
    """Return whether the value of a variable is several words: options, or a command with some."""
    text = text.strip()
    return bool(text.split()[1:]) and (text.startswith("-") or " -" in text or "\n-" in text)


def _filled(word: str, known: Mapping[str, str]) -> str:
    """Return a word with known variables and sums filled in. An unknown variable becomes its
    default (`${name:-1}`), or stays as it is."""

    def value(found: re.Match[str]) -> str:
        name = (found[1] or found[2]).replace("[*]", "[@]")
        default = found[3]
        if default is not None and "$" in default:
            default = _VARIABLE.sub(lambda one: known.get(one[1] or one[2], one[0]), default)
        known_value = known.get(name)
        if known_value is None and (listed := known.get(f"{name.partition('[')[0]}[@]")):
            at = name.partition("[")[2].rstrip("]") or "0"
            at = known.get(at[1:], at) if at.startswith("$") else at
            known_value = _item(listed.split(), at)
        if known_value == "" and default is not None and f"{name}:" in found[0]:
            return default
        return (
            known_value if known_value is not None else default if default is not None else found[0]
        )

    if not 0 < word.count("$") <= MOST_FILLED:
        return word
    word = _SUM.sub(lambda found: _summed(found[1], known) or found[0], word)
    return _VARIABLE.sub(value, word)[:LONGEST]


def _item(items: Sequence[str], at: str) -> str | None:
    """Return the item of a list with an index, or that of a table with a key, `[key]=item`."""
    if items and at.isdecimal() and not items[0].startswith("["):
        return items[int(at)] if len(at) < 10 and int(at) < len(items) else None
    return next((one.partition("]=")[2] for one in items if one.startswith(f"[{at}]=")), None)


def _summed(text: str, known: Mapping[str, str]) -> str | None:
    """Return the value of an arithmetic expression of whole numbers and variables. Return None if
    one of them is not known.
    """

    def value(found: re.Match[str]) -> str:
        name, _, default = found[0].removeprefix("@").partition("~")
        of = name if found[0].isdecimal() else known.get(name, default)
        return str(int(of)) if re.fullmatch(r"\d{1,15}", of) else "_"

    text = re.sub(r"@?\w{1,64}(?:~\d{1,15})?", value, text).replace("/", "//")
    text = re.sub(r"^([^?:]*)\?([^?:]*):(.*)$", r"(\2) if (\1) else (\3)", text)
    text = text.translate(_FROM_LEXER)
    try:
        total = _worked_out(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if total is None else str(total)


def _worked_out(node: ast.AST) -> int | None:
    """Return the value of a parsed sum of whole numbers; None if it is none, or above 10^15."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.IfExp):
        test = _worked_out(node.test)
        return None if test is None else _worked_out(node.body if test else node.orelse)
    if not isinstance(node, ast.BinOp):
        return None
    one, two = _worked_out(node.left), _worked_out(node.right)
    if one is None or two is None:
        return None
    sums = {ast.Add: one + two, ast.Sub: one - two, ast.Mult: one * two}
    if two:  # a shell divides towards zero
        sums[ast.FloorDiv] = abs(one) // abs(two) * (1 if (one < 0) == (two < 0) else -1)
        sums[ast.Mod] = abs(one) % abs(two) * (-1 if one < 0 else 1)
    found = sums.get(type(node.op))
    return found if found is not None and abs(found) <= _MOST_SUM else None


def _commands(text: str) -> Iterable[tuple[str, list[str], str | None]]:
    """Yield (sign before it, such as `||` or `;`; words; the here document that it is given) for
    each simple command of a script. What cannot be read as a command is left out."""
    text = re.sub(r"\\\r?\n", " ", text).rstrip().rstrip("\\")
    text = _BOTH.sub(">", _TO_DESCRIPTOR.sub(" ", text)).replace("|&", "|")
    text = _FOREACH.sub(r"\1for \2 in \3", _SEQ.sub(_sequence, text))
    text = _ARITHMETIC.sub(_sum_of, text)
    text = _COUNTING.sub(_counted, text)
    text = _LISTED.sub(_joined, text)
    text = _SUBSTITUTED.sub("$(_)", text).replace("$(_)", "$_")
    sign = ""
    for line, document in _whole_lines(text):
        if len(line) > LONGEST:  # shlex takes the square of its length
            sign = ""
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words = list[str]()
        try:
            for word in lexer:
                if word and set(word) <= set(";&|()"):
                    yield sign, words, None
                    sign, words = word, list[str]()
                else:
                    words.append(word)
        except ValueError:
            sign = ""
            continue
        yield sign, words, document
        sign = sign if words == [] else ""  # `a ||` goes on with the next line


def _sum_of(found: re.Match[str]) -> str:
    """Return a sum, `$((2 * ${N:-1}))`, rewritten so that the lexer takes it as one word."""
    text = _DEFAULT_OF.sub(r"@\1~\2", found[1]).translate(_TO_LEXER)
    return "${=" + _marked(text) + "}"


def _marked(text: str) -> str:
    """Return a sum without blanks and signs of variables. An argument, `$1`, becomes `@1`, which is
    not the number 1.
    """
    return re.sub(r"[\s${}]", "", re.sub(r"\$\{?(?=\d)", "@", text))


def _sequence(found: re.Match[str]) -> str:
    """Return what `seq` counts as a range, `{1..8}`, or by its items if it counts in steps.
    If they are too many, return `$_`, not known."""
    first, second, third = found.groups()
    if third is None:
        begin, end = (first, second) if second else ("1", first)
        if begin.isdecimal() and end.isdecimal() and int(end) < int(begin):
            return ""
        return f"{{{begin}..{end}}}"
    if not (first.isdecimal() and second.isdecimal()) or int(second) < 1:
        return "$_"
    items = range(int(first), int(third) + 1, int(second))[: _MOST_ITEMS + 1]
    return "$_" if len(items) > _MOST_ITEMS else " ".join(map(str, items))


def _joined(found: re.Match[str]) -> str:
    """Return an assignment of a list, `NAMES=(a b c)`, rewritten as one of a text: `NAMES[@]=`."""
    try:
        items = shlex.split(found[3], comments=True)
    except ValueError:
        return found[0]
    before = [f"${{{found[1]}[@]}}"] if found[2] else []
    text = (
        " ".join([*before, *(re.sub(r"\s", _BLANK, item) for item in items)])
        .replace("\\", "\\\\")
        .replace('"', '\\"')
    )
    return f'{found[1]}[@]="{text}"'


def _counted(found: re.Match[str]) -> str:
    """Return a counting loop, `for ((i = 0; i < 10; i++))`, rewritten as a loop over a range: `for
    i in {0..9}`."""
    last = f"${{={_marked(found[4])}{'-1' if found[3] == '<' else ''}}}"
    return f"for {found[1]} in {{{found[2]}..{last}}}"


def _whole_lines(text: str) -> Iterable[tuple[str, str | None]]:
    """Yield the lines of a script, and the here document (`<<EOF`) that a line is given, its mark
    before it. Of several documents that is the last. Lines within one quotation are joined;
    comments and empty lines are left out."""
    lines = text.splitlines()
    last = {line.strip(): i for i, line in enumerate(lines)}
    held, odd, at = "", 0, 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if not held and (line.lstrip().startswith("#") or not line.strip()):
            continue
        held = f"{held}\n{line}" if held else line
        odd ^= line.count("'") % 2 | 2 * (line.count('"') % 2)
        if odd and len(held) < LONGEST:
            continue
        odd, document, marks = 0, None, set[int]()
        for mark in _DOCUMENT.finditer(held):
            if mark[2] is None or last.get(mark[2], -1) < at:  # it would never end: it is none
                continue
            begin = at
            while lines[at].strip() != mark[2]:
                at += 1
            document = "\n".join([mark[1] + mark[2], *lines[begin:at]])
            at += 1
            marks.add(mark.start())
        yield _without(held, marks), document
        held = ""
    if held:
        yield held, None


def _without(line: str, marks: Collection[int]) -> str:
    """Return a line without the marks of its here documents, which begin at these places."""
    return _DOCUMENT.sub(lambda one: " " if one.start() in marks else one[0], line)
