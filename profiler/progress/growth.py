"""Counters that no format names, found by how they grow towards an amount that the job states.

>>> growth = Growth()
>>> for i in range(1, 6):
...     growth.take(f"{i} of 20 files are done", 10.0 * i)
>>> [(one.n, one.of()) for one in growth.steady()]
[(5.0, 20.0)]

A number is distinguished from others by what stands before it in its line, with numbers left out,
and by the word behind it.
Memory and work are bounded whatever is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import log
from typing import Literal

from profiler.progress.counter import Counter, Point
from profiler.progress.formats import Mark

GROWN = "growth"
Kind = Literal["epoch", "step", "round", "other", ""]
LONGEST, MOST_NUMBERS, MOST = 300, 12, 48  # characters of a line, numbers in it, counters kept
BEFORE = 80  # characters before a number that tell it from others
LEAST = 4  # numbers that went up, before they are a counter
NAMED_LEAST = 3  # the same where each is called a round
OWN_LEAST = 2  # the same where its line has the total
EVEN, EVEN_OWN = 1.6, 2.5  # factor between the paces of two halves, at most
BEHIND = 0.5  # times the share of another, below which a counter goes around it
AROUND = 2  # times that a counter begins again, before another may count them
CLOCKS = 1.0, 1000.0, 1 / 60  # growth in a second of what only tells the time
CLOCK = 0.05  # relative difference from these
EARLY_PERCENT = 20.0  # that a share of the run is below when it is first seen
STATED, RANKS_S = 8, 30.0  # amounts that are kept; seconds in which each rank states its own
LAG = 4.0  # steps that a rank may be behind another
_WORD = re.compile(r"\d{1,3}(?:,\d{3})++(?!\d)|\w+")
_UNIT = re.compile(r"(?<=\d)(?:it|steps?|iters?)$")
_OF = re.compile(
    r"(?:it)? {0,8}(?:\(?of|/|out of) {0,8}(\d{1,3}(?:,\d{3})++|\d{1,12}+)(?!\d|[.:,]\d)"
)
_PERCENT = re.compile(r"(?<![\d.,-])(\d{1,3}(?:\.\d{1,3})?) ?%(?!\|)")
_FRACTION = re.compile(
    r"(?<![\d.,:/-])(\d{1,9}\.\d{1,6}) {0,4}(?:/|of) {0,4}(\d{1,9}(?:\.\d{1,6})?)(?![\d:]|\.\d)"
)
_THING = (
    r"(?:(?:time ?)?steps?|iter(?:ation)?s?|epochs?|generations|sweeps|updates|batches|cycles"
    r"|trials|tasks|jobs|fits|rounds|episodes|games)"
)
_TOTALS = (
    re.compile(
        r"\b(?:(?:total|max\w{0,12}(?: number of(?: \w{1,12})?)?|"
        rf"num(?:ber)?(?: of)?|n) {{0,2}}(?:training )?{_THING}"
        r"|n_?steps?|nstlim|nstep|ncycles?|niter|numb_steps|run)\b['\"]?(?: {0,80}[:=])? {0,80}"
        r"(\d{1,3}(?:,\d{3})++|\d{1,12}+)(?!\d|[.:]\d)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?<![\d.,:/-])(\d{{1,3}}(?:,\d{{3}})++|\d{{1,12}}+) {{1,4}}(?:training )?{_THING}\b",
        re.IGNORECASE,
    ),
)
_OTHER = re.compile(
    r"\b(?:val(?:id\w{0,10})?|eval\w{0,8}|test(?:ing)?|sanity|download\w{0,6}|load\w{0,6}"
    r"|resolv\w{0,6}|filter\w{0,6}|token\w{0,8}|cach\w{0,6}|warm-?up|checkpoint\w{0,8}|compil\w{0,8}|pack\w{0,6}|rank"
    r"|shards?|seed|gpus?|cuda|node|port|pid|line|worker|job id|patience|wait\w{0,3}|sec\w{0,4})\b"
    r"|\b(?:time|elapsed|loss|lr|acc\w{0,6}|reward|return|score|mem\w{0,3}|speed|fps|len\w{0,3}|size"
    r"|psnr|temp\w{0,8})[^\w#]{0,20}#[^#]{0,40}$",
    re.IGNORECASE,
)
_FALLS = re.compile(  # what falls to 0: what is left
    r"\b(?:remaining|left|to go|pending|queued|todo)\b[^\w#]{0,6}#"
    r"(?! ?(?:m?s|secs?|seconds|m|min|minutes|h|hours?|%)\b)[^#]{0,24}$"
    r"|#[^\w#]{0,3}(?:remaining|left|pending|queued|todo)$",
    re.IGNORECASE,
)
_STATES = re.compile(
    r"(?<![\w./-])(\d{1,7}+) (?:(terminated|error(?:ed)?|done|completed?|finished|failed|succeeded"
    r"|skipped|cached)|running|pending|queued|waiting|paused|remaining|scheduled)\b",
    re.IGNORECASE,
)
_DRAWN = re.compile(r"[|\[][#=█▏▎▍▌▋▊▉▓▒░>.\- ]{5,200}[|\]]")  # a bar of signs
_TESTED = re.compile(r"(?<![a-z])(?:va|val\w{0,9}|test|dev)(?![a-z])", re.IGNORECASE)
_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("epoch", re.compile(r"\bep(?:och)?s?(?![a-z])|\bpass(?![a-z])", re.IGNORECASE)),
    ("round", re.compile(r"\brounds?\b", re.IGNORECASE)),
    (
        "other",
        re.compile(r"\b(?:episode|game|fold|trial|run|session|task|job|sample)s?\b", re.IGNORECASE),
    ),
    ("step", re.compile(r"step|iter|batch|update|cycle|sweep|\bgen|frame|\bit\b", re.IGNORECASE)),
)
_BESIDE = re.compile(
    r"every|per |each|warm|eval|valid|save|saving|log|patience|interval|check|freq|last|first"
    r"|after|decay|at least|early|resum|step \d",
    re.IGNORECASE,
)


class Growth:
    """Watches the numbers of lines that no format reads, and the totals that they state."""

    def __init__(self) -> None:
        self._stated: dict[str, tuple[float, float] | None] = {}  # (total, when); None: no total
        self._counters: dict[str, Counter] = {}
        self._first: dict[str, float] = {}  # by label, the largest number seen of what is left

    def take(self, line: str, at: float) -> None:
        """Take in a line, printed `at` seconds after the job began."""
        if len(line) > LONGEST:
            line = line[:LONGEST]
        if "%|" in line:
            return  # a bar
        line = _DRAWN.sub("[]", line)
        percent = _PERCENT.search(line)
        if percent is not None and float(percent[1]) <= 100.0:
            key = _blank(line[: percent.start()]) + "%"
            share = Mark(GROWN, "percent", float(percent[1]), of=100.0, scope="run", label=key)
            self._add(key, share, at)
        part = _FRACTION.search(line)
        if part is not None and 0.0 < float(part[2]) >= float(part[1]):
            key = _blank(line[: part.start()]) + "/"
            mark = Mark(GROWN, "step", float(part[1]), of=float(part[2]), scope="run", label=key)
            self._add(key, mark, at)
        if (states := _by_states(line)) is not None:
            self._add(states.label, states, at)
        tested = _TESTED.search(line) is not None
        before, end, numbers = "", 0, 0
        for match in _WORD.finditer(line):
            before, end = before + line[end : match.start()], match.end()
            word = match[0]
            if not any(c.isdigit() for c in word):
                before += word
                continue
            number = _whole(word, line, match.start(), end)
            if number is not None:
                key = " ".join(before[-BEFORE:].split()) + "#" + _after(line, end)
                self._add(key, self._mark(number, key, line, end)._replace(sure=tested), at)
            before, numbers = before + "#", numbers + 1
            if numbers >= MOST_NUMBERS:
                break

    def _mark(self, number: float, key: str, line: str, end: int) -> Mark:
        """Return the mark of a whole number that ends at `end` of a line."""
        total = _OF.match(line, end)
        of = None if total is None else _number(total[1])
        if of is not None and not 1.0 < of >= number:
            of = None
        mark = Mark(GROWN, "step", number, of=of, scope="run", label=key)
        falls = self._fallen(mark) if of is None and _FALLS.search(key) is not None else None
        return mark if falls is None else falls

    def _fallen(self, mark: Mark) -> Mark | None:
        """Return a mark of what is done, counted from the largest number seen of what is left.
        Return None if that number is at most 1, or `STATED` other labels are followed already."""
        if mark.label not in self._first and len(self._first) >= STATED:
            return None
        first = max(mark.n, self._first.setdefault(mark.label, mark.n))
        self._first[mark.label] = first
        return mark._replace(n=first - mark.n, of=first) if first > 1 else None

    def states(self, line: str, at: float) -> None:
        """Take in the totals that a line states: "500000 steps", "Number of steps: 500000"."""
        if len(line) > LONGEST:
            return
        for pattern in _TOTALS:
            for match in pattern.finditer(line):
                key, number = _blank(line[: match.end()]), _number(match[1])
                known = self._stated.get(key, (number, at))
                if known is None or known[0] != number or at > known[1] + RANKS_S:
                    self._stated[key] = None  # it comes again and again
                elif len(self._stated) < STATED and number > 1:
                    near = line[max(0, match.start() - 30) : match.end() + 10]
                    if _BESIDE.search(near) is None:
                        self._stated[key] = known

    def totals(self, before_s: float) -> set[float]:
        """Return the totals that lines stated once, by this time."""
        return {one[0] for one in self._stated.values() if one is not None and one[1] <= before_s}

    def steady(self) -> Iterator[Counter]:
        """Yield the counters that grow at a near-constant pace, and were seen lately."""
        latest = max((one.seen_s for one in self._counters.values()), default=0.0)
        for one in self._counters.values():
            if one.seen_s >= 0.8 * latest and grows(one):
                yield one

    def around(self, one: Counter) -> float:
        """Return how often a counter with a total may begin again: as often as another was not
        reached yet that was there before it, and is far behind. Return 1 if there is none."""
        share = one.n / (one.mark.of or one.n or 1.0)
        behind = (
            other.mark.of / max(1.0, other.n)
            for other in self._counters.values()
            if other.mark.of is not None and other.n / other.mark.of < BEHIND * share
            if other.points[0][0] <= one.points[0][0]
        )
        return max(behind, default=1.0)

    def goes_around(self, one: Counter) -> bool:
        """Return whether a counter went up each time that another with a total began again."""
        went = one.n - one.points[0][1]
        return any(
            other.resets >= AROUND and abs(other.resets - went) <= 1.0
            for other in self._counters.values()
            if other.mark.of is not None and other is not one
        )

    def _add(self, key: str, mark: Mark, at: float) -> None:
        if _OTHER.search(key) is not None:
            return
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= MOST:
                stale = min(self._counters, key=lambda name: _worth(self._counters[name]))
                del self._counters[stale]
            counter = self._counters[key] = Counter(mark)
        elif mark.n < counter.n and (
            mark.unit == "percent" or mark.n < counter.n - LAG * counter.step
        ):
            counter.setbacks += 1  # a measurement
        counter.add(mark, at)


def _by_states(line: str) -> Mark | None:
    """Return the mark of a line that says how many parts of the job are in which state, `3
    TERMINATED, 1 RUNNING, 6 PENDING`. Return None for another line."""
    states = _STATES.findall(line)
    if len(states) < 2:
        return None
    of = sum(float(number) for number, _ in states)
    done = sum(float(number) for number, over in states if over)
    return Mark(GROWN, "step", done, of=of, scope="run", label="steps by state") if of > 1 else None


def grows(one: Counter) -> bool:
    """Return whether a counter went up several times at a near-constant pace, never began again,
    and does not tell the time.
    """
    points = one.points
    least, even = (LEAST, EVEN) if one.mark.of is None else (OWN_LEAST, EVEN_OWN)
    if one.mark.unit == "percent":
        least, even = LEAST, EVEN
    elif one.step == 1.0 and kind(one) == "round":
        least = min(least, NAMED_LEAST)
    if one.resets or one.setbacks or one.totals > 1 or len(points) < least:
        return False
    if one.mark.unit == "percent" and points[0][1] > EARLY_PERCENT:
        return False
    if len(points) == OWN_LEAST:
        return begins(one, 0.0) and points[1][0] > points[0][0]
    middle = points[len(points) // 2]
    halves = _rate(points[0], middle), _rate(middle, points[-1])
    if min(halves) <= 0 or max(halves) > even * min(halves):
        return False
    pace = _rate(points[0], points[-1])
    return one.mark.of is not None or not any(abs(log(pace / x)) < CLOCK for x in CLOCKS)


def kind(one: Counter) -> Kind:
    """Return what a counter counts by its format or the words around it; "" where they do not
    say.
    """
    if one.mark.format != GROWN:
        return "step"
    return next((name for name, words in _KINDS if words.search(one.mark.label)), "")


def begins(one: Counter, total: float) -> bool:
    """Return whether a counter began near 0, as one does that goes up to this total."""
    first = one.points[0][1]
    stride = (one.n - first) / max(1, len(one.points) - 1)
    return first <= max(2.0, 2.0 * stride, 0.02 * total)


def _rate(a: Point, b: Point) -> float:
    return (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else 0.0


def _worth(one: Counter) -> tuple[bool, float]:
    """Return what keeps a counter from being forgotten: whether it may be one, and when it was
    seen.
    """
    return not one.resets and not one.setbacks and len(one.points) > 1, one.seen_s


def _whole(word: str, line: str, begin: int, end: int) -> float | None:
    """Return the whole number that a word is; None if it is part of a time, a date or a decimal,
    or the total of another.
    """
    unit = _UNIT.search(word)
    digits = (word[: unit.start()] if unit is not None else word).replace(",", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 12):
        return None
    before = line[max(0, begin - 2) : begin]
    if before[-1:] in (".", "-", "+", "/") or (before[-1:] == ":" and before[:1].isdigit()):
        return None
    after = line[end : end + 2]
    if len(after) == 2 and after[0] in ".:-" and after[1].isdigit():
        return None
    return float(digits)


def _after(line: str, end: int) -> str:
    """Return the word behind a number; "#" for another number."""
    match = _WORD.search(line, end, end + 20)
    if match is None:
        return line[end : end + 20].strip()
    word = "#" if any(c.isdigit() for c in match[0]) else match[0]
    return line[end : match.start()].strip() + word


def _blank(text: str) -> str:
    """Return a text without its numbers."""
    return " ".join(re.sub(r"\d+", "#", text[-BEFORE:]).split())


def _number(text: str) -> float:
    return float(text.replace(",", ""))
