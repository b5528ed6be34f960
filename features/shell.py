"""The commands that a shell line or script would run, as far as its text shows them.

>>> one_of(["bash", "-c", "cd a && python train.py --epochs 3"])
[Simple(words=['python', 'train.py', '--epochs', '3'], times=1.0)]
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from math import inf, prod
from typing import NamedTuple

MOST_CHARACTERS = 50_000  # of a script are read
MOST_COMMANDS = 500  # that are read, however deep
MOST_FILLED = 32  # variables in a word
LONGEST = 4096  # characters of a line that is split, and of a word once it is filled in
DEPTH = 4  # shells within shells
_SHELLS = re.compile(r"(?:^|/)(?:ba|da|z|k|a)?sh$")
_HANDS_ON = re.compile(r"-[a-z]{0,6}c")
_VARIABLE = re.compile(
    r"\$(?:(\w{1,64})|\{(\w{1,64}(?:\[(?:[@*]|\d{1,4})\])?)(?::?[-=]([^{}]{0,200}))?\})"
)
_DEFAULTED = re.compile(r"\$\{(\w{1,64}):?=([^{}$]{0,200})\}")
_SUM = re.compile(r"\$\{=([^{}]{1,80})\}")  # as arithmetic is written for the lexer
_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,63}(?:\[@\])?)=(.*)", re.DOTALL)
_LISTED = re.compile(r"(?<![\w$])([A-Za-z_]\w{0,63})(\+?)=\(([^()]{0,4000})\)")
_FUNCTION = re.compile(
    r"\s{0,40}(?:function\s{1,4}([A-Za-z_]\w{0,63})(?:\s{0,4}\(\s{0,4}\))?"
    r"|([A-Za-z_]\w{0,63})\s{0,4}\(\s{0,4}\))\s{0,4}(?:\{(.*))?$"
)
_RANGE = re.compile(r"\{(-?\d{1,6})\.\.(-?\d{1,6})\}")
_SEQ = re.compile(
    r"\$\(\s{0,4}seq\s{1,4}(\$?\{?\w{1,20}\}?)(?:\s{1,4}(\$?\{?\w{1,20}\}?))?\s{0,4}\)"
)
_ARITHMETIC = re.compile(r"\$\(\(([\w\s$+*/%{}-]{1,80})\)\)")
_COUNTING = re.compile(
    r"for\s{1,4}\(\(\s{0,4}(\w{1,20})\s{0,4}=\s{0,4}(\d{1,6})\s{0,4};\s{0,4}\w{1,20}\s{0,4}(<=?)"
    r"\s{0,4}(\d{1,6})\s{0,4};\s{0,4}(?:\+\+\w{1,20}|\w{1,20}\+\+)\s{0,4}\)\)"
)
_SUBSTITUTED = re.compile(r"\$\([^()]{0,500}\)")  # what a command prints is not known
_REPEATS = "xargs", "parallel"  # run a command for each of what they are given
_ALL = "$@", "$*", "${@}", "${*}"
_OPENS = "then", "else", "do", "{", "!", "time", "exec", "elif", "if"
_TESTS = ["["], ["[["], ["test"]
_SAY = "echo", "printf"  # what is handed to them is not run
_HANDED = "su", "runuser", "script", "flock"  # run what stands behind their -c
_ARGUMENT = re.compile(r"\$\{?\d")
_LOCAL = re.compile(r"\blocal\s{1,4}(?:-\w{1,8}\s{1,4})?([A-Za-z_]\w{0,63})")
_SSH_VALUES = re.compile(r"-[a-zA-Z]{0,8}[BbcDEeFIiJLlmOopQRSWw]$")  # another word belongs to it
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
    if (line := _handed(words)) is not None:
        return [] if depth >= DEPTH else _script(line, known, depth + 1, budget)
    if words and (body := known.get(f"{words[0]}()")) is not None and depth < DEPTH:
        return _called(body, words, known=known, depth=depth, budget=budget)
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
    if name in _HANDED:
        for i, word in enumerate(words[:-1]):
            if _HANDS_ON.fullmatch(word) or word == "--command":
                return words[i + 1]
    return None


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
    branches: list[_Branch] = []
    tested = False  # what follows `&&` or `||` is run only if a test says so
    text, functions = _functions(text[:MOST_CHARACTERS])
    known |= functions
    for sign, words in _commands(text):
        budget[0] -= 1
        if budget[0] < 0:
            break
        words = _branched(sign, words, branches, known)
        if any(branch.skips for branch in branches):
            continue
        otherwise = sign == "||" or any(branch.otherwise for branch in branches)
        plain, condition = _steered(words, loops, known)
        known |= {name: known.get(name, of) for w in plain for name, of in _DEFAULTED.findall(w)}
        before = dict(known) if tested and sign in ("&&", "||") else {}
        plain = _assigned([one for word in plain for one in _filled_all(word, known)], known)
        known |= {name: _either(name, {of, known[name]}) for name, of in before.items()}
        tested = plain[:1] in _TESTS or (tested and sign in ("&&", "||"))
        if plain and plain[0] not in _SAY:
            around = loops[:-1] if condition else loops
            times = inf if inf in around else prod(around)
            times *= _repeated(plain)
            inner = _unwrapped(plain, known, depth, budget)
            found += [
                Simple(one.words, one.times * times, one.otherwise or otherwise) for one in inner
            ]
    return found


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
            if not _ARGUMENT.search(subject):
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
    for line in text.splitlines():
        if name:
            if line.lstrip().startswith("}"):
                bodies[f"{name}()"] = "\n".join(body)
                name = ""
            elif line.strip() != "{":
                body.append(line)
            continue
        found = _FUNCTION.match(line) if "(" in line or "function" in line else None
        if found is None:
            lines.append(line)
        elif (one := (found[3] or "").rstrip()).endswith("}"):
            bodies[f"{found[1] or found[2]}()"] = one[:-1]
        else:
            name, body = found[1] or found[2], [found[3] or ""]
    return (text, {}) if name else ("\n".join(lines), bodies)  # one that never ends is none


def _steered(words: list[str], loops: list[float], known: dict[str, str]) -> tuple[list[str], bool]:
    """Return the words of a shell command after control words such as `then` and `do`, [] if no
    word is left, and whether it is the condition of the loop that begins. When a loop begins,
    append its number of iterations to `loops`; when one ends, remove the last entry.
    """
    while words and words[0] in _OPENS:
        words = words[1:]
    if not words or words[0] in _CLOSES:
        if words[:1] == ["done"] and loops:
            loops.pop()
        return [], False
    if words[0] in _LOOPS:
        loops.append(_times(words, known))
        known.pop(words[1] if len(words) > 1 else "", None)
        until = words[0] == "until" or words[:2] == ["while", "!"]  # it is run until it succeeds
        return (words[1 + (words[1:2] == ["!"]) :] if until else []), until
    return words, False


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
    if a variable holds options or a list, otherwise one word."""
    if word in _ALL:
        return [known[str(n)] for n in range(1, len(known) + 1) if str(n) in known]
    filled = _filled(word, known)
    if filled != word and _VARIABLE.fullmatch(word) and ("[" in word or _holds_words(filled)):
        return filled.split()
    return [filled]


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
            items = listed.split()
            known_value = items[int(at)] if int(at) < len(items) else None
        return (
            known_value if known_value is not None else default if default is not None else found[0]
        )

    if not 0 < word.count("$") <= MOST_FILLED:
        return word
    word = _SUM.sub(lambda found: _summed(found[1], known) or found[0], word)
    return _VARIABLE.sub(value, word)[:LONGEST]


def _summed(text: str, known: Mapping[str, str]) -> str | None:
    """Return the value of an arithmetic expression of whole numbers and variables. Return None if
    one of them is not known.
    """
    parts = re.split(r"([+*/%-])", text)
    values = [known.get(part, part) for part in parts[::2]]
    if not all(re.fullmatch(r"\d{1,9}", value) for value in values):
        return None
    terms = [int(values[0])]
    for sign, one in zip(parts[1::2], map(int, values[1:]), strict=True):
        if sign in "/%" and not one:
            return None
        if sign in "+-":
            terms.append(one if sign == "+" else -one)
        elif sign == "*":
            terms[-1] *= one
        else:
            before = abs(terms[-1])
            less = before // one if sign == "/" else before % one
            terms[-1] = less if terms[-1] >= 0 else -less
    return str(sum(terms))


def _commands(text: str) -> Iterable[tuple[str, list[str]]]:
    """Yield (sign before it, such as `||` or `;`; words) for each simple command of a script. What
    cannot be read as a command is left out."""
    text = re.sub(r"\\\r?\n", " ", text)
    text = _SEQ.sub(
        lambda found: f"{{{found[1] if found[2] else 1}..{found[2] or found[1]}}}", text
    )
    text = _ARITHMETIC.sub(lambda found: "${=" + re.sub(r"[\s${}]", "", found[1]) + "}", text)
    text = _COUNTING.sub(_counted, text)
    text = _LISTED.sub(_joined, text)
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


def _joined(found: re.Match[str]) -> str:
    """Return an assignment of a list, `NAMES=(a b c)`, rewritten as one of a text: `NAMES[@]=`."""
    try:
        items = shlex.split(found[3], comments=True)
    except ValueError:
        return found[0]
    before = [f"${{{found[1]}[@]}}"] if found[2] else []
    text = " ".join([*before, *items]).replace("\\", "\\\\").replace('"', '\\"')
    return f'{found[1]}[@]="{text}"'


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
