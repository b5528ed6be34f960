"""A job's output read as it is written, to predict how long the job will run.

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
from dataclasses import replace
from itertools import islice, pairwise
from math import ceil, inf, log, sqrt
from typing import Literal, NamedTuple

from features.amounts import Amount
from features.commands import MOST, patience, printed
from features.progress import CONTRADICTED, EARLY, GROWN, REPEATS, Progress, Z
from profiler.progress.bars import WORK
from profiler.progress.columns import Columns, heading, other
from profiler.progress.counter import Counter, Point
from profiler.progress.fits import Fits
from profiler.progress.formats import LINE, Mark, explicit, in_columns, plain, read
from profiler.progress.growth import Growth, begins, grows, kind
from profiler.progress.names import TABLE
from profiler.progress.table import Scope

MOST_BYTES, END_BYTES = 8192, 4096  # of what comes at once is read; of more, the end
COUNTERS = 24
SETTINGS_BYTES = 65_536  # of the beginning are read whatever comes, and searched for settings
FIRST = 10.0  # how doubtful it is that a bar alone is all there is
SURE = 19.0  # odds above which the less likely is not among nine in ten
CHOSEN, MAGNITUDES = 0.1, 3  # share of epochs whose steps somebody chose; where lengths lie
HEADED = 1 / 3  # odds that a bar beside the number of an epoch is not of that epoch alone
FALLS = 0.5  # share of a time left that passes, in which it falls if it is of the run
ETAS = 32
AGAIN = 10.0  # times as long as one run within the run may the whole take
USUAL = 5.0, 10.0  # runs within a run where nothing says how many: folds, mostly
FEW = 3.0  # epochs: as many of something else are no wonder
GROWS = 1.5  # times as many as have begun there may be beyond these
LEAST = 0.02  # standard error of any rate, relative: the future is never just like the past
ACCUMULATED = 4.0  # times as many batches there may be as steps
ENOUGH = 4  # units passed: they say more than the steps within them
FIRST_UNIT = 0.35  # relative error of a pace by the first unit alone
START_S = 60.0  # that imports and data may take
UNSEEN = 0.12  # share of an epoch that may follow its steps, until one has ended
AFTER = 0.01  # share of the whole that may follow what is counted: a last checkpoint
PARTLY, BEFORE = 1.5, 3.0  # times as long may it take: a total of a line; while no loss is printed
SHORT = 10.0  # a total below which a counter may be one of a part: folds of each candidate
AGREE = 2.0  # factor between what two counters come to, above which neither is believed
STRANGE = (
    2.0  # over the number of steps seen: how much wider a counter makes it that no format names
)
OWN = "its own words"
FRAMES = "Stable-Baselines3"
_BREAKS = re.compile(rb"[\r\n]+")
_TESTS = re.compile(r"(?<![A-Za-z])(?:val|eval|test|VAL|EVAL|Val|Eval|Test)(?![a-z]{0,12}\.py)")
_LOSS = re.compile(r"(?<![a-z])[Ll]oss\W{1,4}\d")
_CUT = b"0123456789.,:/"
_HF = "Hugging Face"
_GROWN = "boosting", "CatBoost", "rl_games", "Stable-Baselines3"  # none follows their rounds


class Structure(NamedTuple):
    """Which counters of a job make up its run.

    Attributes:
        main: what counts the run.
        inner: what counts within one of its units.
        doubt: factor by which what is left may take longer than forecast.
        between: factors of the forecast total between which the true one lies, where it is not
            sure what `main` counts: a bar the run or an epoch, a run that may begin again.
    """

    main: Counter
    inner: Counter | None = None
    doubt: float = 1.0
    between: tuple[float, float] = (1.0, 1.0)


class Reader:
    """Takes in a job's output and predicts how long the job will run.

    Args:
        amount: what the command asks for (`features.commands.of_command`), where output says
            only how fast.
    """

    def __init__(self, amount: Amount | None = None) -> None:
        self._asked = amount or Amount()
        self._printed: dict[str, set[float]] = {"epochs": set(), "steps": set()}
        self._counters: dict[tuple[str, ...], Counter] = {}
        self._rest = self._begun = b""
        self._seen_bytes = 0
        self._fed_s = 0.0
        self._gap_s = 0.0
        self._patience = self._asked.patience
        self._loss_s = -inf  # when a line with a loss was read last
        self._tested_s = inf  # when a line of an evaluation was read first
        self._etas: list[Point] = []  # (when it was printed, what was left), thinned
        self._eta_scope: Scope = ""
        self._promised_s = inf
        self._columns: Columns | None = None
        self._growth = Growth()
        self._fits = Fits()
        self._known = False  # by formats

    def asks(self, amount: Amount) -> None:
        """Set the amount of training that the job's command states. Called when it becomes known
        after the job began.
        """
        self._asked = amount
        self._patience = self._patience if amount.patience is None else amount.patience

    def feed(self, data: bytes, at: float) -> None:
        """Take in the output written since the last call, up to `at` seconds after the job
        began.
        """
        self._gap_s, self._fed_s = max(0.0, at - self._fed_s), max(at, self._fed_s)
        if len(data) > max(MOST_BYTES, SETTINGS_BYTES - self._seen_bytes):
            data = self._shortened(data)
        begun, self._begun = self._begun, b""  # a bar that was read before its end came
        *lines, rest = _BREAKS.split(self._rest + data)
        self._rest = rest[: LINE + 1]  # of a line that is too long, what follows is not joined on
        for line in lines:
            if line and line != begun:
                whole = line if len(line) <= LINE else line[:LINE].rstrip(_CUT)
                self._take(whole.decode("utf-8", "replace"), at)
        if self._rest.count(b"|") > 1 or b"[" in self._rest:  # a bar before its carriage return
            # the number at its end may be cut
            for mark in read(self._rest[:LINE].rstrip(_CUT).decode("utf-8", "replace")):
                self._begun = self._rest
                self._count(mark, at)

    def words(self, text: str, at: float) -> None:
        """Take in what the job wrote to its progress file: `1200/5000`, or JSON."""
        done, slash, of = text.strip().partition("/")
        if slash:
            text = f'{{"progress": {{"done": {done}, "of": {of}}}}}'
        mark = explicit(text) if "{" in text else None
        if mark is not None:
            self._fed_s = max(at, self._fed_s)
            self._count(mark, at)

    def _shortened(self, data: bytes) -> bytes:
        """Return the end of the output, in whole lines, and before it the last heading of an
        epoch. `data` is longer than `END_BYTES`.
        """
        cut = len(data) - END_BYTES
        head = data.rfind(b"poch ", 0, cut)
        self._rest = b""
        heading = b""
        if head >= 0:
            begin = max(data.rfind(b"\n", 0, head), data.rfind(b"\r", 0, head)) + 1
            end = _BREAKS.search(data, head, head + LINE)
            if end is not None and head - begin < LINE:
                heading = data[begin : end.end()]
        first = _BREAKS.search(data, cut)
        return heading + (data[first.end() :] if first is not None else b"")

    def _take(self, line: str, at: float) -> None:
        settings: list[tuple[str, float]] = []
        marks = read(line) or self._row(line) or self._fits.take(line)
        if self._seen_bytes < SETTINGS_BYTES:
            self._seen_bytes += len(line)
            settings = _settings(line, marks)
            for unit, number in settings:
                found = self._printed[unit]
                if len(found) < 3:
                    found.add(number)
            self._growth.states(line, at)
        if "oss" in line and _LOSS.search(line) is not None:
            self._loss_s = at
        if self._tested_s == inf and _TESTS.search(line) is not None and self._counters:
            self._tested_s = at
        if "arly" in line or "atience" in line or "mprove" in line:
            self._patience = patience(line) if self._patience is None else self._patience
        if not self._known and all(mark.of is None for mark in marks):
            self._growth.take(line, at)
        for mark in marks:
            if (mark.unit + "s", mark.n) not in settings:
                self._count(mark, at)

    def _row(self, line: str) -> list[Mark]:
        line = plain(line)
        columns = heading(line)
        if columns is not None or (self._columns is not None and other(line)):
            self._columns = columns
        return in_columns(self._columns, line) if self._columns is not None else []

    def _count(self, mark: Mark, at: float) -> None:
        if mark.unit == "eta":
            # it was to be over by now, and there is much left: the ETA was of something else
            late = self._promised_s < at and mark.n > 0.25 * at
            self._promised_s = -inf if late else min(self._promised_s, at + mark.n)
            self._eta_scope = mark.scope
            if self._etas and self._etas[-1][0] == at:
                self._etas.pop()
            self._etas.append((at, mark.n))
            if len(self._etas) > 2 * ETAS:
                self._etas = [*self._etas[:-1:2], self._etas[-1]]
            return
        key: tuple[str, ...] = (mark.format, mark.unit, mark.label)
        if mark.format == "tqdm" and mark.unit == "step" and mark.of is not None:
            key = (*key, f"{mark.of:g}")  # bars without a label differ in their length
        counter = self._counters.get(key)
        if counter is not None and _apart(counter, mark):
            key = (*key, "apart")
            counter = self._counters.get(key)
        if counter is None:
            if len(self._counters) >= COUNTERS:
                stale = min(self._counters, key=lambda name: self._counters[name].seen_s)
                del self._counters[stale]
            counter = self._counters[key] = Counter(mark)
        counter.add(mark, at)

    # --- what it comes to ---------------------------------------------------------------------

    def progress(self, now: float) -> Progress | None:
        """Return the job's progress with its predicted total duration, `now` seconds after the job
        began, or None. The prediction combines the counters in the output with the run's own
        estimate. Doubts widen its bounds.

        What the counters come to is weighed against the run's own estimate, and is as uncertain as
        its doubts are.
        """
        found = next((f for s in self._structures() if (f := self._forecast(s, now))), None)
        by_eta = self._by_eta(now)
        if found is not None and by_eta is not None:
            found = _reconciled(found, by_eta)
        found = found or by_eta
        self._known = found is not None
        if found is None:
            amount = Amount(self._amount("epochs"), self._amount("steps"))
            grown = _growing(self._growth, self._alive(), amount, self._loss_s == -inf)
            each = [(f, s.main) for s in grown if (f := self._forecast(s, now)) is not None]
            found = _agreed(each, now)
        return None if found is None else self._doubted(found, now)

    def _of(self, counter: Counter) -> float | None:
        """Return the final value of a counter: its printed total, or the amount that the command
        states. Return None if neither is known.
        """
        of, unit = counter.of(), counter.mark.unit
        if unit == "fold":
            runs = self._asked.runs
            return of if of is not None else runs if runs is not None and runs < MOST else None
        if unit not in ("epoch", "step") or (of is not None and counter.mark.of is not None):
            return of
        if unit == "step" and counter.resets:
            return of
        asked = self._amount(unit + "s")
        return asked if asked is not None or unit == "epoch" else self._by_epochs(counter)

    def _by_epochs(self, steps: Counter) -> float | None:
        """Return the number of steps of the run, by the steps that an epoch took, if steps go
        on from epoch to epoch and the number of epochs is known; else None.
        """
        for epochs in self._counters.values():
            if epochs.mark.unit != "epoch" or epochs.mark.exact or epochs.resets:
                continue
            of, points = self._of(epochs), epochs.points
            if of is not None and 1 < len(points) < len(steps.points):
                (first_s, first), (last_s, last) = points[0], points[-1]
                made = steps.at(last_s) - steps.at(first_s)
                if made > 0 and steps.points[0][0] < points[1][0]:
                    return steps.at(first_s) + made / (last - first) * (of - epochs.done_at(first))
        return None

    def _amount(self, unit: str) -> float | None:
        own = self._printed[unit]
        asked: float | None = getattr(self._asked, unit)
        return asked if asked is not None else next(iter(own)) if len(own) == 1 else None

    def _alive(self) -> list[Counter]:
        """Return the counters that may count the training. Left out are counters whose total keeps
        changing, counters finished long ago, and bars without a label while no loss is printed.
        """
        found = []
        latest = max((c.seen_s for c in self._counters.values()), default=0.0)
        for counter in self._counters.values():
            of = counter.of()
            over = of is not None and counter.done >= of and counter.resets == 0
            if not counter.mark.named and self._loss_s < counter.points[0][0]:
                continue  # a bar whose label says nothing, while no loss is printed
            if counter.mark.of is not None and counter.mark.of == self._amount("steps"):
                over = False  # what comes now is no other training
            if counter.totals > 4 or (over and counter.seen_s < 0.9 * latest - 5.0):
                continue
            found.append(counter)
        return [c for c in found if not c.mark.label.startswith(WORK)] or found

    def _structures(self) -> Iterator[Structure]:
        """Yield the structures of a run that the counters may make up, the likeliest first."""
        alive = self._alive()
        yield from (Structure(c) for c in alive if c.mark.label == "explicit")
        epochs = [c for c in alive if c.mark.unit == "epoch"]
        hugging = [c for c in epochs if c.mark.format == _HF]
        steps = [c for c in alive if c.mark.unit in ("step", "percent")]
        if any(_passed_again(c) for c in steps):  # an only epoch was one of something longer
            epochs = [c for c in epochs if c.mark.of != 1.0 or c.points[1:] or c.resets]
        whole = [c for c in steps if self._whole(c, bool(hugging), epochs)]
        within = [c for c in steps if c not in whole and c.of()]
        yield from _finest([c for c in whole if c.mark.of is None])
        for counter in sorted(whole, key=lambda c: (-(self._of(c) or 0), -c.seen_s)):
            yield Structure(counter)
        inner = max(within, key=_seen, default=None)
        for fold in (c for c in alive if c.mark.unit == "fold" and not c.resets):
            if self._of(fold) is not None:  # each fold counts its epochs again
                yield Structure(fold, self._in_a_fold(epochs, inner), 2.0)
                return
        if (again := self._again(epochs)) is not None:
            yield again
        # bars of tqdm count epochs by themselves, lines of a log when they are done
        known = [c for c in epochs if not c.resets and c.mark.format != _HF]
        known.sort(key=lambda c: (c.mark.label == "counted", len(c.points), c.seen_s))
        for one in reversed(known):
            passes = self._may_be_passes(one, steps) or _short(one, [*self._counters.values()])
            yield self._first_epoch(one, inner) or Structure(one, inner, FIRST if passes else 1.0)
            if self._of(one) is None:
                yield from _over_steps(one, inner, self._amount("steps"))
        if not epochs and (cycled := self._cycled(within)) is not None:
            yield cycled
        if hugging or not epochs:
            yield from self._bars(within)
        yield from (Structure(c) for c in hugging if not c.resets)

    def _in_a_fold(self, epochs: list[Counter], steps: Counter | None) -> Counter | None:
        """Return the counter of the epochs within a fold, if their number is known; None
        otherwise.

        If no epochs are counted, it is the counter of steps.
        """
        known = [c for c in epochs if self._of(c) is not None]
        if not known:
            return None if epochs else steps
        one = max(known, key=_seen)
        if one.mark.of is not None:
            return one
        of = self._of(one)
        return replace(one, mark=one.mark._replace(of=of - one.zero if of is not None else None))

    def _again(self, epochs: list[Counter]) -> Structure | None:
        """Return the structure of a job that trains several times in a row, each time counting its
        epochs from the start. Return None for another job. The number of runs comes from the
        command, or is a usual number once a second run has begun.

        If the command does not say, as many as are usual, once a second run has begun.
        """
        runs = self._runs()
        for one in epochs:
            within = self._in_a_fold([one], None)
            if within is None or (runs is None and not (one.resets and self._may_repeat())):
                continue
            begun = one.resets + 1.0
            times = runs or next((n for n in USUAL if begun <= n), GROWS * begun)
            return Structure(_times(one, "fold", times), within, 1.3)
        return None

    def _runs(self) -> float | None:
        """Return the number of runs that the command states. Return None if it states none or one,
        or `MOST` and more: those are not counted.
        """
        runs = self._asked.runs
        return runs if runs is not None and 1.0 < runs < MOST else None

    def _cycled(self, within: list[Counter]) -> Structure | None:
        """Return the structure of a run whose epochs have no number: a bar that begins again is an
        epoch each time. Return None where the command does not say how many, or no bar may be
        one."""
        epochs = self._amount("epochs")
        bars = [c for c in within if c.resets and c.mark.named and c.cycles]
        if not epochs or not bars:
            return None
        if any(c.mark.of == epochs and not c.resets for c in within):
            return None  # a bar of the epochs
        one = min(bars, key=_begun_s)  # that of the test comes after it
        if epochs <= 1.0 or one.resets > epochs:
            return None  # it began more often than there are epochs
        return Structure(_times(one, "epoch", epochs), one)

    def _whole(self, counter: Counter, hugging: bool, epochs: list[Counter]) -> bool:
        """Return whether a counter of steps goes on over the whole run."""
        if counter.mark.of is not None and counter.mark.of == self._amount("steps"):
            return not counter.resets
        if counter.mark.scope:
            # a column of steps may count within an epoch
            within = counter.mark.format == TABLE and bool(counter.resets)
            return counter.mark.scope == "run" and not within
        if counter.resets:
            return False
        if hugging:
            return counter.mark.format == "tqdm" and counter.mark.of == self._longest()
        unknown = all(c.mark.of is None for c in epochs) and self._amount("epochs") is None
        if counter.mark.of is None and unknown and (not epochs or self._amount("steps")):
            return True  # its end is what the command asks for
        # an epoch has passed and it went on
        begun = counter.points[0][0]
        changes = [c.points[-1][0] for c in epochs if c.mark.label != "counted" and c.points[1:]]
        return any(begun < at < counter.seen_s for at in changes)

    def _longest(self) -> float:
        """Return the length of the longest bar."""
        bars = (c.mark.of or 0.0 for c in self._counters.values() if c.mark.format == "tqdm")
        return max(bars, default=0.0)

    def _bars(self, within: list[Counter]) -> Iterator[Structure]:
        """Yield possible structures of a job that shows progress bars without labels. The bar that
        is least complete counts the whole run, another bar the steps within its units.
        """
        once = [c for c in within if not c.resets and c.mark.scope != "epoch"]
        if not once:
            return
        main = min(once, key=lambda c: c.n / (c.mark.of or 1.0))
        others = [c for c in within if c.resets or c.mark.scope == "epoch"]
        others = [c for c in others if _begun_s(main) <= _begun_s(c)]
        others = others or [c for c in once if c is not main and _holds(main, c)]
        if others:
            yield Structure(main, max(others, key=_seen))
        elif main.mark.format != "tqdm":
            yield Structure(main, None, 1.5)
        elif (epochs := self._amount("epochs") or 1.0) <= 1.0:
            yield Structure(main, None, FIRST)  # a bar alone may be the first of many
        elif sum(c.mark.format == "tqdm" for c in self._counters.values()) == 1:
            yield from _alone(main, epochs)

    def _may_be_passes(self, epochs: Counter, steps: list[Counter]) -> bool:
        """Return whether epochs may be passes over what one of the steps collected that the command
        asks for: no step has ended since it was seen.
        """
        asked = self._amount("steps") is not None and self._amount("epochs") is None
        passed = epochs.resets or any(c.points[1:] or c.resets for c in steps)
        return asked and epochs.mark.of is not None and not passed

    def _first_epoch(self, epochs: Counter, bar: Counter | None) -> Structure | None:
        """Return the structure of a run in its first epoch that shows an unlabelled bar beside the
        number of the epoch. The bar's length decides whether it counts one epoch or all. Return
        None without such a bar, or where its length is no multiple of the epochs.
        """
        of = self._amount("epochs") or self._of(epochs)
        if of is None or of <= 1.0 or bar is None:
            return None
        if bar.mark.scope or bar.resets or bar.n >= (bar.mark.of or 0.0):
            return None
        changed_s = epochs.points[-1][0] if epochs.points[1:] else -inf
        if bar.seen_s <= changed_s:  # an epoch is over, and it is not
            return Structure(bar)
        if _begun_s(bar) < changed_s:
            return None
        odds = HEADED * _odds(bar, of)
        if not odds:
            return None
        if odds < 1.0:
            return Structure(epochs, bar, between=(1.0 / of, 1.0))
        return Structure(bar, between=(1.0, 1.0 if odds > SURE else of))

    def _forecast(self, structure: Structure, now: float) -> Progress | None:
        main, inner, doubt, (least_of, most_of) = structure
        of = self._of(main)
        if of is None or not of >= main.done > -1:
            return None
        if not main.closed():
            return None  # whether this was the end of an epoch is not known
        passed = self._passed(main, inner, of)
        if passed is None:
            return None
        at, done, unit_s, error, extra, least = passed
        doubt = max(doubt, least)
        left = max(0.0, of - done)
        each = 1.0 if main.mark.unit in ("epoch", "fold") else self._epoch_of(main, of)
        begun = extra * ceil(left / each - 1e-9) * each  # of the unit that is under way all
        low = at + left * unit_s * max(0.05, 1.0 - Z * error)
        high = at + unit_s * (left * (1.0 + Z * error) + 4 * begun) * (doubt if left else 1.0)
        high += AFTER * high
        total = at + unit_s * (left + begun / 3)
        if main.zero and not main.mark.last and self._of(main) != self._amount("epochs"):
            low -= unit_s  # "0/24" may go to 23
        if not main.mark.based and main.points[0][1] > 1:
            high += unit_s  # it went on from a checkpoint, and may count from 0
        overdue = now - at - (2.0 * unit_s if main.mark.unit in ("epoch", "fold") else 0.0)
        if overdue > max(10.0, 0.25 * at):  # it should have moved on: what comes now is not known
            total, high = total + overdue, high + 2 * overdue
        if not left:  # what it does now was not counted
            high += 2.0 * max(0.0, now - at)
        if doubt >= FIRST:
            high = max(high, 0.5 * doubt * total)
        low, high = min(low, least_of * total), max(high, most_of * total)
        if doubt > 2 or high > 3 * max(total, 1.0):
            low = min(low, 0.5 * total)
        return Progress(
            total_s=max(total, now),
            low_s=max(low, now),
            high_s=max(high, total, now),
            done=round(done, 3),
            of=of,
            unit=main.mark.unit,
            unit_s=unit_s,
            at_s=at,
            source=main.mark.format,
        )

    def _passed(
        self, main: Counter, inner: Counter | None, of: float
    ) -> tuple[float, float, float, float, float, float] | None:
        """Return the last progress and the pace; None if the pace is unknown.

        The tuple: time of the last progress (seconds), units done, seconds per unit, relative
        error of these, share of a unit that work not seen yet (an evaluation) may add to it, least
        factor by which the upper bound of what is left is multiplied for doubt.
        """
        begun, (at, n) = main.points[0][1], main.points[-1]
        within = main.within() if main.mark.unit in ("epoch", "fold") else 0.0
        starts = within > 0.5
        if inner is not None and n - begun < ENOUGH and within in (0.0, 1.0):
            by_steps = _by_steps(inner, self._gap_s)
            if by_steps is not None:
                share, when = inner.done / (inner.of() or 1), inner.points[-1][0]
                if when < at or (when == at and share > 0.5):
                    share, when = 0.0, at  # it is that of the unit before
                done = min(of, main.done + share)
                unit_s, error, unseen = by_steps
                return when, done, unit_s, error, UNSEEN if unseen else 0.0, 1.0
        pace = _pace(main.points, self._gap_s, starts)
        if pace is None and main.setbacks:
            pace = _pace(list(main.cycles[-1]), self._gap_s, starts)
        if pace is not None:
            return at, main.done, *pace, self._unseen(main, of), 1.0
        if n == begun and main.done == 1.0 and not starts and main.mark.unit == "epoch":
            # it took so long, its start included
            unit_s = min(0.8 * at, max(0.5 * at, at - 0.5 * START_S))
            return at, main.done, unit_s, max(0.15, min(1.0, START_S / max(at, 1.0)) / Z), 0.0, 2.1
        return None

    def _unseen(self, main: Counter, of: float) -> float:
        """Return the share of a unit that an evaluation may add, as long as none was seen. Return 0
        if none is expected.
        """
        if main.mark.label == "explicit" or main.mark.format in _GROWN:
            return 0.0
        if main.mark.unit in ("epoch", "fold") and not main.mark.exact:
            return 0.0
        if self._tested_s < main.seen_s:
            return 0.0
        each = self._epoch_of(main, of)
        begun = main.done_at(main.points[0][1])
        if each < of or self._amount("epochs") == 1.0:
            return UNSEEN if main.done < (begun // each + 1.02) * each else 0.0
        own = max(1.0, of - begun)  # without what an earlier run has done
        return UNSEEN * own / of * max(0.0, 1.0 - 2.0 * (main.done - begun) / own)

    def _epoch_of(self, main: Counter, of: float) -> float:
        """Return the number of units of the run in one epoch. Return all units if the number of
        epochs is unknown.
        """
        epochs = self._amount("epochs") or 1.0
        return of / epochs if 1.0 < epochs < of else of

    def _doubted(self, found: Progress, now: float) -> Progress:
        """Return the forecast with doubts that no counter shows: the run may stop early, or run
        again. Each widens the bounds and is named.
        """
        total, low, high = found.total_s, found.low_s, found.high_s
        patience = self._patience
        if found.source != OWN and patience is not None and patience < found.of:
            waits = max(0.0, patience - found.done) if found.unit == "epoch" else 0.0
            soonest = max(now, found.at_s + waits * found.unit_s)
            if soonest < low:
                low, total = soonest, sqrt(soonest * high)
                found = replace(found, doubts=found.doubted(EARLY))
        runs = self._runs()
        counts_runs = GROWN in found.doubts and found.of == runs
        if found.source not in (OWN, "fold") and self._may_repeat() and not counts_runs:
            if found.unit != "fold":  # of the first run
                high = max(high, AGAIN * total)
                total = min(high, (runs or USUAL[0]) * total)
                found = replace(found, doubts=found.doubted(REPEATS))
            elif runs is None:  # of as many as are usual
                begun = ceil(found.done + 1e-9)
                ends = found.at_s + (begun - found.done) * found.unit_s
                low = min(low, max(now, (1.0 - 2 * LEAST) * ends))
                more = max(AGAIN, 2.0 * begun) - found.done
                high = max(high, found.at_s + more * found.unit_s)
                found = replace(found, doubts=found.doubted(REPEATS))
        return replace(found, total_s=total, low_s=low, high_s=high)

    def _may_repeat(self) -> bool:
        """Return whether the job may train several times.

        Its command asks for several runs or, where that says nothing of runs, its output counts
        folds.
        """
        if self._asked.runs is not None:
            return self._asked.runs > 1.0
        return any(c.mark.unit == "fold" for c in self._counters.values())

    def _by_eta(self, now: float) -> Progress | None:
        """Return a forecast from the time left that the output prints. Return None if that time is
        not about the whole run, or is not consistent. If it falls more slowly than real time, it is
        scaled up.

        If it falls more slowly than time passes (an evaluation is not in it), it is taken to go
        on so.
        """
        etas = self._etas[len(self._etas) // 3 :]
        least = 3
        if len(self._etas) < least or self._promised_s < 0 or not self._of_run(etas[0][0]):
            return None
        (first_s, first), (at, eta) = etas[0], etas[-1]
        if eta >= first and at - first_s > FALLS * first:
            return None  # it does not fall: of something else
        slowness = 1.0
        if at - first_s > max(2.0 * self._gap_s, 0.02 * at) and first > eta:
            slowness = min(2.0, max(1.0, (at - first_s) / (first - eta)))
        left = eta * slowness
        ends = [when + slowness * eta for when, eta in etas]
        middle = sorted(ends)[len(ends) // 2]
        spread = max(max(ends) - middle, middle - min(ends)) / Z
        drift = (slowness - 1.0) / 2
        error = sqrt((spread / max(left, 1.0)) ** 2 + (2 * LEAST) ** 2 + drift**2) * Z
        epochs = [c for c in self._alive() if c.mark.unit == "epoch" and not c.mark.exact]
        unseen = bool(epochs) and all(len(c.points) < 2 for c in epochs)
        total = at + left
        if len(self._etas) < ENOUGH:
            error = max(error, Z * FIRST_UNIT)
        settled = _settled(etas if len(etas) > ENOUGH else self._etas, at)
        if settled is not None and settled < total - 0.05 * left:  # what was slow at first is in it
            error += (total - settled) / left
            total, left = settled, max(1.0, settled - at)
        high = total + left * error + (4 * UNSEEN * total if unseen else 0.0)
        high = max(high, (1 + LEAST) * total)
        return Progress(
            total_s=max(total, now),
            low_s=max(at + left * max(0.05, 1 - error), now),
            high_s=max(high, total, now),
            done=at,
            of=total,
            unit="eta",
            unit_s=1.0,
            at_s=at,
            source="eta",
        )

    def _of_run(self, since_s: float) -> bool:
        """Return whether the times left that the run prints are about the whole run: by their
        format, since the run has no epochs, or since they continue beyond the end of an epoch.
        """
        if self._eta_scope == "run":
            return True
        epochs = [c for c in self._alive() if c.mark.unit == "epoch"]
        if all((self._of(c) or 1.0) <= 1.0 for c in epochs):
            return True
        return any(c.points[1:] and since_s < c.points[-1][0] < self._etas[-1][0] for c in epochs)


def _growing(
    growth: Growth, alive: Sequence[Counter], amount: Amount, lossless: bool
) -> Iterator[Structure]:
    """Yield a structure for each counter that grows towards a total. The total is the one printed
    on the counter's own line, or else one that the command or another line states.

    Args:
        growth: the counters found by their growth alone, in lines that no format reads.
        alive: the counters that a format reads.
        amount: the amount of work that the job's command asks for.
        lossless: no loss was printed yet.
    """
    steady = list(growth.steady())
    asked, passes = amount.steps, amount.epochs
    epochs = [c for c in alive if c.mark.unit == "epoch"]
    going = [c for c in steady if c.mark.of and c.n < c.mark.of]  # one that is done was a part
    still = not any(one.points[1:] or one.resets for one in epochs)  # each within a round, say
    whole = [
        c for c in going if not epochs or _outlasts(c, epochs) or (still and growth.goes_around(c))
    ]
    if whole and (passes is None or passes <= 1.0):
        doubt = BEFORE if lossless else PARTLY
        yield from (_of_line(c, doubt, growth.around(c)) for c in whole)
        return
    steady += [c for c in alive if c.mark.unit == "step" and grows(c)]
    rounds = not epochs and not any(kind(one) == "step" for one in steady)
    for one in steady:
        of, counts = one.mark.of, kind(one)
        if counts == "round" and rounds:  # nothing else counts
            counts = "step"
        if of is not None and of not in (asked, passes):
            if _outlasts(one, epochs) and counts != "epoch":
                yield Structure(one, None, PARTLY)
            continue
        if asked is not None and counts in ("step", ""):
            # a number without a word that goes up by one may count something longer
            plain = not counts and one.step == 1.0
            yield from _towards(one, asked, 1.0, 1.0 / BEFORE if plain else 1.0)
        each_pass = counts == "epoch" or (not counts and one.mark.sure)
        if passes is not None and one.step == 1.0 and each_pass:
            yield from _towards(one, passes, PARTLY)
        if counts in ("step", ""):
            for total in growth.totals(one.points[0][0]) - {asked, passes}:
                yield from _towards(one, total, PARTLY)


def _of_line(one: Counter, doubt: float, most: float) -> Structure:
    """Return the structure of a run that a counter with a total of its own counts. A short one may
    begin again.

    Args:
        most: how often it may begin again, whatever its length.
    """
    most = max(most, FIRST if (one.mark.of or 0.0) < SHORT else 1.0)
    return Structure(one, None, doubt, (1.0, most))


def _outlasts(counter: Counter, epochs: Sequence[Counter]) -> bool:
    """Return whether a counter went on while an epoch ended."""
    ends = (one.points[-1][0] for one in epochs if one.points[1:])
    return any(counter.points[0][0] < at < counter.seen_s for at in ends)


def _agreed(found: Sequence[tuple[Progress, Counter]], now: float) -> Progress | None:
    """Return the forecast of the counter with most readings, widened by how few they are. Return
    None if there is none, or if two come to totals that are far apart.
    """
    found = [(one, main) for one, main in found if kind(main) == "step"] or found
    totals = [one.total_s for one, _ in found]
    if not found or max(totals) > AGREE * min(totals):
        return None
    best, main = max(found, key=lambda pair: (len(pair[1].points), -pair[0].error))
    wider = 1.0 + STRANGE / len(main.points)
    low = best.at_s + (min(one.low_s for one, _ in found) - best.at_s) / wider
    high = best.at_s + (max(one.high_s for one, _ in found) - best.at_s) * wider
    return replace(
        best,
        low_s=min(best.total_s, max(now, low - best.unit_s)),
        high_s=max(best.total_s, high + best.unit_s),
        doubts=best.doubted(GROWN),
    )


def _reconciled(found: Progress, by_eta: Progress) -> Progress:
    """Return the forecast, its bounds widened to hold the run's own statement if the two
    differ.
    """
    if found.low_s <= by_eta.total_s <= found.high_s or by_eta.at_s < 0.5 * found.at_s:
        return found
    return replace(
        found,
        low_s=min(found.low_s, by_eta.total_s),
        high_s=max(found.high_s, by_eta.total_s),
        doubts=found.doubted(CONTRADICTED),
    )


def _settled(etas: Sequence[Point], at: float) -> float | None:
    """Return the end of the job, seconds since it began, extrapolated from the times left that it
    prints. Each of these uses the mean pace since the beginning, so the effect of a slow beginning
    fades. Return None if the times do not fall.

    A slow beginning counts less and less: a line is drawn through the ends over one through the
    time passed. None: the estimates do not fall.
    """
    if len(etas) < 3:
        return None
    begun_s = etas[0][0] - (etas[1][0] - etas[0][0])
    xs = [1.0 / max(1e-3, when - begun_s) for when, _ in etas]
    ends = [when + eta for when, eta in etas]
    middle, mean = sum(xs) / len(xs), sum(ends) / len(ends)
    spread = sum((x - middle) ** 2 for x in xs)
    if spread <= 0:
        return None
    slope = sum((x - middle) * (end - mean) for x, end in zip(xs, ends, strict=True)) / spread
    return max(at + etas[-1][1] / 2, mean - slope * middle) if slope > 0 else None


def _towards(one: Counter, of: float, doubt: float, least: float = 1.0) -> Iterator[Structure]:
    """Yield the structure of a run that a counter without a total counts, if it began near 0 and
    is below this total.
    """
    if one.n < of and begins(one, of):
        main = replace(one, mark=one.mark._replace(of=of, scope="run"))
        yield Structure(main, None, doubt, (least, 1.0))


def _times(one: Counter, unit: Literal["epoch", "fold"], of: float) -> Counter:
    """Return a counter of how often another has begun."""
    begins = [first for (first, _), _, _ in one.cycles] + [one.points[0][0]]
    done = one.resets + 1.0
    points = [(at, done - len(begins) + i) for i, at in enumerate(begins, 1)]
    return Counter(Mark(one.mark.format, unit, done, of), points, seen_s=one.seen_s)


def _alone(bar: Counter, epochs: float) -> Iterator[Structure]:
    """Yield the structure of a run that shows a single bar, if the bar's length tells its meaning.
    A bar of length `epochs` counts epochs. A bar over all steps has a multiple of `epochs`.

    A bar as long as there are epochs counts them. One over all steps has a multiple of them.
    """
    if bar.mark.of == epochs:
        counts = replace(bar, mark=bar.mark._replace(unit="epoch", ends=True, exact=True))
        yield Structure(counts, None, 1.5 if epochs > FEW else FIRST)
        return
    odds = _odds(bar, epochs)
    if odds >= 1.0:
        yield Structure(bar, None, 1.5, (1.0, 1.0 if odds > SURE else max(FEW, epochs)))


def _odds(bar: Counter, epochs: float) -> float:
    """Return the likelihood ratio of two readings of a bar's length: the bar counts all epochs, or
    one epoch. A bar over all epochs has a multiple of their number as its length.

    One over all is a multiple of their number, as an epoch is by chance alone.
    """
    of = bar.mark.of or 0.0
    return 0.0 if of % epochs or of <= epochs else _likely(of / epochs) / _likely(of)


def _likely(steps: float) -> float:
    """Return the prior probability density that an epoch has this many steps. All magnitudes are
    equally likely. Round numbers of two digits are likelier, since people choose them.
    """
    chosen = CHOSEN / (90 * MAGNITUDES) if steps == float(f"{steps:.1e}") else 0.0
    return (1.0 - CHOSEN) / (log(10.0) * MAGNITUDES * steps) + chosen


def _finest(steps: Sequence[Counter]) -> Iterator[Structure]:
    """Yield a structure for a run whose output has several counters of steps, where the command
    asks for a number of steps without saying which. The run takes as long as the quickest counter
    needs, or is shorter by up to the ratio of the quickest to the slowest. Yield nothing if the
    counters are about equal."""
    if len(steps) > 1:
        quickest, slowest = max(steps, key=_number), min(steps, key=_number)
        if slowest.n > 0 and quickest.n > AGREE * slowest.n:
            named = quickest.mark.format == FRAMES  # what is asked for by that name
            yield Structure(quickest, None, 1.0, (1.0, 1.0 if named else quickest.n / slowest.n))


def _number(counter: Counter) -> float:
    return counter.n


def _over_steps(epochs: Counter, bar: Counter | None, steps: float | None) -> Iterator[Structure]:
    """Yield the structure of a run whose command asks for steps, while its output shows epochs
    without a total and a bar of the steps of each. Several of the bar may be one of these.
    """
    each = bar.mark.of or inf if bar is not None else inf
    if steps is not None and each < steps:
        main = replace(epochs, mark=epochs.mark._replace(of=steps / each - epochs.zero))
        yield Structure(main, bar, between=(1.0, ACCUMULATED))


def _settings(line: str, marks: Sequence[Mark]) -> list[tuple[str, float]]:
    """Return the settings that a line states; none where it says how far it is, as in "Epoch: 1/4
    Train steps: 719".
    """
    far = any(mark.unit == "epoch" and mark.of is not None for mark in marks)
    return [] if far else printed(line)


def _apart(counter: Counter, mark: Mark) -> bool:
    """Return whether a number is another one than a counter's, though it is printed like it: one
    of them has a total, and the other is above it.
    """
    of, other = counter.mark.of, mark.of
    if of is not None and other is None:
        return mark.n > of
    return of is None and other is not None and counter.n > other


def _passed_again(bar: Counter) -> bool:
    """Return whether the bar of an epoch was full, and began again."""
    of = bar.mark.of or inf
    return bar.mark.scope == "epoch" and any(last >= of for _, _, (_, last) in bar.cycles)


def _short(epochs: Counter, steps: Sequence[Counter]) -> bool:
    """Return whether an only epoch has so few steps that it may be one of many passes over what was
    just collected.
    """
    bars = [c.mark.of or inf for c in steps if c.mark.scope == "epoch"]
    return epochs.mark.of == 1.0 and bool(bars) and min(bars) < SHORT


def _holds(outer: Counter, inner: Counter) -> bool:
    """Return whether the outer bar was there before the inner one, and began at 0."""
    return _begun_s(outer) <= _begun_s(inner) and outer.points[0][1] < 1


def _begun_s(counter: Counter) -> float:
    """Return when the counter was first read, seconds."""
    return counter.cycles[0][0][0] if counter.cycles else counter.points[0][0]


def _seen(counter: Counter) -> float:
    return counter.seen_s


def _pace(points: Sequence[Point], gap_s: float, warm: bool) -> tuple[float, float] | None:
    """Return seconds a unit and their relative standard error, without the warm-up; None if
    nothing was counted.

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
    """Return the relative standard error of the mean pace, from the scatter over up to eight
    stretches.
    """
    count = min(8, len(points) - 1)
    if count < 2:
        return 0.06
    cuts = [points[round(i * (len(points) - 1) / count)] for i in range(count + 1)]
    # of each stretch: how much longer it took than at the mean pace
    odd = [b[0] - a[0] - unit_s * (b[1] - a[1]) for a, b in pairwise(cuts)]
    return sqrt(sum(x * x for x in odd) * count / (count - 1)) / (cuts[-1][0] - cuts[0][0])


def _by_steps(inner: Counter, gap_s: float) -> tuple[float, float, bool] | None:
    """Return (seconds of a unit, relative error, whether the time between units is yet unseen),
    by the steps within units; None if steps have no total, or none was timed.
    """
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
