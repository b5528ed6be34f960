"""From a job's output, as it comes, to how long the job will run.

>>> reader = Reader()
>>> reader.feed(b"step 100/1000\\n", 20.0), reader.feed(b"step 200/1000\\n", 30.0)
>>> reader.feed(b"step 300/1000\\n", 40.0)
>>> reader.progress(40.0).total_s
110.0

Pure: no clock, no file. Memory and work are bounded whatever is printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from math import inf, sqrt

from features.amounts import Amount, printed
from features.progress import Progress, Z
from profiler.progress.counter import Counter, Point
from profiler.progress.formats import LINE, Mark, explicit, read

MOST_BYTES, END_BYTES = 8192, 4096  # of what comes at once is read; of more, the end
COUNTERS = 24
SETTINGS_BYTES = 65_536  # of the beginning are read whatever comes, and searched for settings
Structure = tuple[Counter, Counter | None, float]  # what counts the run, what counts within one
# of its units, and how doubtful that is: the factor by which the total may be larger
LEAST = 0.02  # standard error of any rate, relative: the future is never just like the past
ENOUGH = 4  # units passed: they say more than the steps within them
FIRST_UNIT = 0.2  # relative error of a pace by the first unit alone
UNSEEN = 0.12  # share of an epoch that may follow its steps, until one has ended
_BREAKS = re.compile(rb"[\r\n]+")
_HF = "Hugging Face"


class Reader:
    """Takes in output; says how long the job will run.

    Args:
        amount: what the command asks for (`features.amounts.of_command`), where output says
            only how fast.
    """

    def __init__(self, amount: Amount | None = None) -> None:
        self._asked = amount or Amount()
        self._printed: dict[str, set[float]] = {"epochs": set(), "steps": set()}
        self._counters: dict[tuple[str, ...], Counter] = {}
        self._rest = b""
        self._seen_bytes = 0
        self._fed_s = 0.0
        self._gap_s = 0.0
        self._etas: list[Point] = []  # (when it was printed, when the run is to be over)
        self._promised_s = inf

    def feed(self, data: bytes, at: float) -> None:
        """Output that came by `at` seconds after the job began, since the last call."""
        self._gap_s, self._fed_s = max(0.0, at - self._fed_s), max(at, self._fed_s)
        if len(data) > max(MOST_BYTES, SETTINGS_BYTES - self._seen_bytes):
            data = self._shortened(data)
        *lines, rest = _BREAKS.split(self._rest + data)
        self._rest = rest[:LINE]
        for line in lines:
            if line:
                self._take(line[:LINE].decode("utf-8", "replace"), at)
        if self._rest.count(b"|") > 1 or b"[" in self._rest:  # a bar before its carriage return
            for mark in read(self._rest.decode("utf-8", "replace")):
                self._count(mark, at)

    def words(self, text: str, at: float) -> None:
        """What the job has written to its progress file: `1200/5000`, or the JSON of a line."""
        done, slash, of = text.strip().partition("/")
        if slash:
            text = f'{{"progress": {{"done": {done}, "of": {of}}}}}'
        mark = explicit(text) if "{" in text else None
        if mark is not None:
            self._fed_s = max(at, self._fed_s)
            self._count(mark, at)

    def _shortened(self, data: bytes) -> bytes:
        """The end, and the last heading of an epoch before it."""
        cut = len(data) - END_BYTES
        head = data.rfind(b"poch ", 0, cut)
        self._rest = b""
        tail = data[data.find(b"\n", cut) + 1 or cut :]
        return (data[max(0, head - 60) : head + 200] + b"\n" if head >= 0 else b"") + tail

    def _take(self, line: str, at: float) -> None:
        settings: list[tuple[str, float]] = []
        if self._seen_bytes < SETTINGS_BYTES:
            self._seen_bytes += len(line)
            settings = printed(line)
            for unit, number in settings:
                found = self._printed[unit]
                if len(found) < 3:
                    found.add(number)
        for mark in read(line):
            if (mark.unit + "s", mark.n) not in settings:
                self._count(mark, at)

    def _count(self, mark: Mark, at: float) -> None:
        if mark.unit == "eta":
            # it was to be over by now, and there is much left: the ETA was of something else
            late = self._promised_s < at and mark.n > 0.25 * at
            self._promised_s = -inf if late else min(self._promised_s, at + mark.n)
            self._etas = [*self._etas[-31:], (at, at + mark.n)]
            return
        key: tuple[str, ...] = (mark.format, mark.unit, mark.label)
        if mark.format == "tqdm" and mark.unit == "step" and mark.of is not None:
            key = (*key, f"{mark.of:g}")  # bars without a label differ in their length
        counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= COUNTERS:
                stale = min(self._counters, key=lambda name: self._counters[name].seen_s)
                del self._counters[stale]
            counter = self._counters[key] = Counter(mark)
        counter.add(mark, at)

    # --- what it comes to ---------------------------------------------------------------------

    def progress(self, now: float) -> Progress | None:
        """How long it will run, as far as known `now` seconds after it began; None: not known."""
        for main, inner, doubt in self._structures():
            of = self._of(main)
            if of is not None and of >= main.done > -1:
                found = self._forecast(main, of, inner, doubt, now)
                if found is not None:
                    return found
        return self._by_eta(now)

    def _of(self, counter: Counter) -> float | None:
        """How many units it goes to."""
        of = counter.of()
        if of is None and counter.mark.unit in ("epoch", "step"):
            of = self._amount(counter.mark.unit + "s")
        return of

    def _amount(self, unit: str) -> float | None:
        own = self._printed[unit]
        asked: float | None = getattr(self._asked, unit)
        return asked if asked is not None else next(iter(own)) if len(own) == 1 else None

    def _alive(self) -> list[Counter]:
        """Counters that may be of the training: neither grown nor done with long ago."""
        found = []
        latest = max((c.seen_s for c in self._counters.values()), default=0.0)
        for counter in self._counters.values():
            of = counter.of()
            over = of is not None and counter.done >= of and counter.resets == 0
            if counter.totals > 4 or (over and counter.seen_s < 0.9 * latest - 5.0):
                continue
            found.append(counter)
        return found

    def _structures(self) -> Iterator[Structure]:
        """The likeliest first."""
        alive = self._alive()
        yield from ((c, None, 1.0) for c in alive if c.mark.label == "explicit")
        epochs = [c for c in alive if c.mark.unit == "epoch"]
        hugging = any(c.mark.format == _HF for c in epochs)
        steps = [c for c in alive if c.mark.unit in ("step", "percent")]
        whole = [c for c in steps if self._whole(c, hugging, epochs)]
        within = [c for c in steps if c not in whole and c.mark.of]
        for counter in sorted(whole, key=lambda c: (-(c.mark.of or 0), -c.seen_s)):
            yield counter, None, 1.0
        inner = max(within, key=_seen, default=None)
        for fold in (c for c in alive if c.mark.unit == "fold" and not c.resets):
            # each fold counts its epochs again
            yield fold, max((c for c in epochs if c.mark.of), key=_seen, default=inner), 2.0
            return
        # bars of tqdm count epochs by themselves, lines of a log when they are done
        known = [c for c in epochs if not c.resets and c.mark.format != _HF]
        known.sort(key=lambda c: (c.mark.label == "counted", len(c.points), c.seen_s))
        yield from ((c, inner, 1.0) for c in reversed(known))
        if hugging or not epochs:
            yield from self._bars(within)

    def _whole(self, counter: Counter, hugging: bool, epochs: list[Counter]) -> bool:
        """Whether a counter of steps goes on over the whole run."""
        if counter.mark.scope:
            return counter.mark.scope == "run"
        if counter.resets:
            return False
        if hugging:
            return counter.mark.format == "tqdm"
        # an epoch has passed and it went on
        begun = counter.points[0][0]
        changes = [c.points[-1][0] for c in epochs if c.mark.label != "counted" and c.points[1:]]
        return any(begun < at < counter.seen_s for at in changes)

    def _bars(self, within: list[Counter]) -> Iterator[Structure]:
        """Of bars that do not say what they count, the one that is behind holds the others."""
        once = [c for c in within if not c.resets and c.mark.scope != "epoch"]
        if not once:
            return
        main = min(once, key=lambda c: c.n / (c.mark.of or 1.0))
        others = [c for c in within if c.resets or c.mark.scope == "epoch"]
        others = others or [c for c in once if c is not main]
        if others:
            yield main, max(others, key=_seen), 1.0
        elif main.mark.format != "tqdm":
            yield main, None, 1.5
        elif (self._amount("epochs") or 1.0) <= 1.0:
            # a bar alone may be the first of many; where epochs are asked for it cannot be known
            yield main, None, 10.0

    def _forecast(
        self, main: Counter, of: float, inner: Counter | None, doubt: float, now: float
    ) -> Progress | None:
        begun = main.points[0][1]
        starts = main.mark.unit in ("epoch", "fold") and not main.mark.ends
        pace = _pace(main.points, self._gap_s, starts)
        if pace is None and main.setbacks:
            pace = _pace(list(main.cycles[-1]), self._gap_s, starts)
        done, at = main.done, main.points[-1][0]
        extra = 0.0
        if inner is not None and main.n - begun < ENOUGH:
            by_steps = _by_steps(inner, self._gap_s)
            if by_steps is not None:
                unit_s, error, unseen = by_steps
                at, done = inner.points[-1][0], min(of, main.done + inner.done / (inner.of() or 1))
                extra = UNSEEN if unseen else 0.0
                pace = unit_s, error
        if pace is None and main.n == begun == 1 and not starts and main.mark.unit == "epoch":
            pace, doubt = (0.8 * at, 0.15), max(doubt, 2.1)  # it took so long, its start included
        if pace is None:
            return None
        unit_s, error = pace
        left = max(0.0, of - done)
        low = at + left * unit_s * max(0.05, 1.0 - Z * error)
        high = at + left * unit_s * (1.0 + Z * error + 4 * extra) * (doubt if left else 1.0)
        total = at + left * unit_s * (1.0 + extra / 3)
        if main.zero and not main.mark.last and self._of(main) != self._amount("epochs"):
            low -= unit_s  # "0/24" may go to 23
        if not main.mark.based and main.points[0][1] > 1:
            high += unit_s  # it went on from a checkpoint, and may count from 0
        overdue = now - at - (2.0 * unit_s if main.mark.unit == "epoch" else 0.0)
        if overdue > max(10.0, 0.25 * at):  # it should have moved on: what comes now is not known
            total, high = total + overdue, high + 2 * overdue
        if doubt > 2 or high > 3 * max(total, 1.0):
            low = min(low, 0.5 * total)
        return Progress(
            max(total, now), max(low, now), max(high, total, now), round(done, 3), of,
            main.mark.unit, unit_s, at, main.mark.format,
        )  # fmt: skip

    def _by_eta(self, now: float) -> Progress | None:
        """By what it says is left, if it says so of the whole run and holds to it."""
        ends = self._etas[len(self._etas) // 3 :]
        if len(self._etas) < 3 or self._promised_s < 0:
            return None
        values = sorted(end for _, end in ends)
        at, total = ends[-1]
        middle = values[len(values) // 2]
        spread = max(abs(values[-1] - middle), abs(values[0] - middle)) / Z
        error = sqrt((spread / max(total, 1.0)) ** 2 + (2 * LEAST) ** 2) * Z
        left = max(0.0, total - at)
        return Progress(
            max(total, now), max(at + left * max(0.05, 1 - error), now),
            max(at + left * (1 + error), total, now), at, total, "eta", 1.0, at, "eta",
        )  # fmt: skip


def _seen(counter: Counter) -> float:
    return counter.seen_s


def _pace(points: Sequence[Point], gap_s: float, warm: bool) -> tuple[float, float] | None:
    """Seconds a unit and its relative standard error, the warm-up left out.

    Args:
        warm: the first of few units holds the warm-up.
    """
    (first_s, first), (last_s, last) = points[0], points[-1]
    if last_s <= first_s or last <= first:
        return None
    kept: Sequence[Point] = points
    if last - first <= 8:
        kept = points[1:] if warm and len(points) > 2 else points
    elif len(points) > 3:
        begin = first_s + 0.25 * (last_s - first_s)
        kept = [p for p in points if p[0] >= begin]
    if kept[-1][0] <= kept[0][0] or kept[-1][1] <= kept[0][1]:
        kept = points
    (first_s, first), (last_s, last) = kept[0], kept[-1]
    unit_s = (last_s - first_s) / (last - first)
    # a first unit alone: how much of it was warm-up is not known
    spread = FIRST_UNIT if warm and len(points) == 2 else _spread(kept, unit_s)
    error = sqrt(LEAST**2 + spread**2 + (gap_s / (last_s - first_s)) ** 2 / 2)
    return unit_s, error


def _spread(points: Sequence[Point], unit_s: float) -> float:
    """Relative standard error of the mean pace, from that of up to eight stretches."""
    count = min(8, len(points) - 1)
    if count < 2:
        return 0.06
    cuts = [points[round(i * (len(points) - 1) / count)] for i in range(count + 1)]
    # of each stretch: how much longer it took than at the mean pace
    odd = [b[0] - a[0] - unit_s * (b[1] - a[1]) for a, b in pairwise(cuts)]
    return sqrt(sum(x * x for x in odd) * count / (count - 1)) / (cuts[-1][0] - cuts[0][0])


def _by_steps(inner: Counter, gap_s: float) -> tuple[float, float, bool] | None:
    """Seconds of a unit by the steps within it, the relative error, and whether it is yet to be
    seen what comes beside them."""
    of = inner.of() or 0.0
    if of <= 0 or inner.done > of:
        return None
    runs = [(b, c) for _, b, c in islice(inner.cycles, 1)]  # the first begins slowly
    runs += [(a, c) for a, _, c in islice(inner.cycles, 1, None)]
    now = inner.points
    if len(now) > 2:
        runs.append((now[0] if inner.cycles else now[len(now) // 4], now[-1]))
    took_s = sum(b[0] - a[0] for a, b in runs)
    made = sum(b[1] - a[1] for a, b in runs)
    if took_s <= 0 or made <= 0:
        return None
    step_s = took_s / made
    odd = [b[0] - a[0] - step_s * (b[1] - a[1]) for a, b in runs]
    spread = _spread(now, step_s) if len(runs) == 1 else sqrt(sum(x * x for x in odd)) / took_s
    ends = [c for _, _, c in inner.cycles]
    begins = [a for a, _, _ in islice(inner.cycles, 1, None)] + [now[0]] * bool(ends)
    # what comes between the last step of one and the first of the next: validation, a checkpoint
    between = [
        max(0.0, b[0] - e[0] - step_s * (of - e[1] + b[1]))
        for e, b in zip(ends, begins, strict=True)
    ]
    beside_s = sum(between) / len(between) if between else 0.0
    error = sqrt(LEAST**2 + spread**2 + (gap_s / took_s) ** 2 / 2)
    return step_s * of + beside_s, error, not between
