"""A training with a clock of its own: how long its parts take, and what it prints when."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import Any

BAR_S = 0.1  # between two prints of a bar, at least: tqdm's own default
TIME = "2026-03-01 12:00:00"
FULL = "██████████"
TRACEBACK = """Traceback (most recent call last):
  File "/work/train.py", line 212, in <module>
    main()
RuntimeError: NCCL communicator was aborted on rank 3."""

Shape = Callable[["Run"], None]


@dataclass(frozen=True)
class Sizes:
    """The sizes of a log, drawn at random.

    Attributes:
        every: number of steps between two lines.
        start_s: seconds before the first step; end_s: after the last.
        drift: how much slower the end is than the beginning, relative.
        noise: standard deviation of an epoch's pace, relative.
        first: number of epochs that an earlier run has done.
        stops: number of epochs after which it stops early; 0: it trains all `epochs`.
        crashes: number of epochs after which it fails, to go on one epoch earlier; 0: it never
            fails.
    """

    epochs: int
    steps: int
    step_s: float
    validate_s: float
    every: int
    start_s: float
    end_s: float
    drift: float
    noise: float
    first: int = 0
    stops: int = 0
    crashes: int = 0

    @classmethod
    def drawn(
        cls, source: random.Random, epochs: tuple[int, int], seconds: tuple[float, float]
    ) -> Sizes:
        """Return random sizes of a run. `epochs` and `seconds` are the least and the greatest
        number of epochs and length of the run in seconds."""
        count = round(_between(source, *epochs))
        took_s = _between(source, *seconds)
        steps = max(8, round(_between(source, 30, 3000) / max(1.0, count / 20)))
        beside = source.choice((0.0, 0.02, 0.1, 0.25))
        return cls(
            epochs=count,
            steps=steps,
            step_s=(1 - beside) * took_s / count / steps,
            validate_s=beside * took_s / count,
            every=max(1, steps // source.choice((4, 10, 25))),
            start_s=source.uniform(3.0, 0.05 * took_s + 5.0),
            end_s=source.uniform(0.0, 0.01) * took_s,
            drift=source.gauss(0.0, 0.04),
            noise=source.choice((0.01, 0.03, 0.06)),
        )


def _between(source: random.Random, low: float, high: float) -> float:
    """Return a random number between two; its logarithm is evenly distributed."""
    return exp(source.uniform(log(low), log(high)))


@dataclass
class Run:
    """A made-up run that prints. Waiting moves its clock on.

    Attributes:
        now: seconds since it began. parts: what it printed, each with the seconds when.
    """

    sizes: Sizes
    source: random.Random
    now: float = 0.0
    parts: list[tuple[float, str]] = field(default_factory=list)
    _loss: float = 5.0
    _pace: float = 1.0
    _began: float = 0.0
    _done: int = 0
    _bar_s: float = -1.0

    @property
    def total(self) -> int:
        """Return the number of steps of the whole run."""
        return self.sizes.epochs * self.sizes.steps

    def wait(self, seconds: float) -> None:
        """Let about `seconds` pass, up to a tenth more or less."""
        self.now += seconds * self.source.uniform(0.9, 1.1)

    def put(self, text: str) -> None:
        """Print a text as it is."""
        self.parts.append((self.now, text))

    def line(self, template: str, **fields: Any) -> None:
        """Print a line with its fields filled in; an empty template prints nothing."""
        if template:
            self.put(template.format(**self._known(), **fields) + "\n")

    def begin(self) -> None:
        """Let the time of imports and of loading data pass. The times and steps that lines print
        are counted from then on."""
        self.wait(self.sizes.start_s)
        self._began, self._done = self.now, 0

    def end(self) -> None:
        """Let the time of the last checkpoint pass."""
        self.wait(self.sizes.end_s)

    def epochs(self) -> Iterator[int]:
        """Yield the numbers of the epochs that the run trains, from `sizes.first`. After a crash
        the run continues one epoch earlier."""
        sizes, crashes, at = self.sizes, self.sizes.crashes, self.sizes.first
        while at < (sizes.stops or sizes.epochs):
            if crashes and at == crashes:
                self.put(TRACEBACK + "\n")
                self.begin()
                crashes, at = 0, max(0, at - 1)
            share = at / sizes.epochs
            self._pace = (1 + sizes.drift * (share - 0.5)) * exp(self.source.gauss(0, sizes.noise))
            yield at
            at += 1

    def steps(self, count: int) -> None:
        """Let the time of `count` steps pass. The first call after `begin` takes longer."""
        slow = 1.0 + (self.source.uniform(2.0, 15.0) / count if self._done == 0 else 0.0)
        self.wait(count * self.sizes.step_s * self._pace * slow)
        self._done += count
        self._loss = 0.2 + 5.0 / (1 + self._done / self.total * 10)

    def validate(self, parts: int = 1) -> None:
        """Let the time of one of `parts` equal parts of an epoch's evaluation pass."""
        self.wait(self.sizes.validate_s * self._pace / parts)

    def bar(self, label: str, n: int, of: int, since_s: float, **options: str) -> None:
        """Print a bar of tqdm. Do nothing if one was printed within the last `BAR_S` seconds and
        this one is not full.

        Args:
            since_s: when the bar began, by the run's clock.
            options: `unit`, `after` (figures), `end`: what ends it.
        """
        if self.now < self._bar_s + BAR_S and n < of:
            return
        self._bar_s = self.now
        unit, after = options.get("unit", "it"), options.get("after", "")
        took_s = max(1e-3, self.now - since_s)
        pace = n / took_s
        speed = f"{pace:.2f}{unit}/s" if pace > 1 or not n else f"{1 / pace:.2f}s/{unit}"
        left = short((of - n) / pace) if n else "?"
        full = FULL[: 10 * n // of]
        head = f"{label}: " if label else ""
        self.put(
            f"\r{head}{100 * n // of:3d}%|{full:10s}| {n}/{of} [{short(took_s)}<{left}, "
            f"{speed}{after and ', ' + after}]{options.get('end', '')}"
        )

    def _known(self) -> dict[str, Any]:
        sizes = self.sizes
        step_s = (self.now - self._began) / max(1, self._done)
        left = max(0, (self.sizes.epochs - sizes.first) * sizes.steps - self._done)
        return {
            "epochs": sizes.epochs,
            "last": sizes.epochs - 1,
            "steps": sizes.steps,
            "total": self.total,
            "loss": self._loss,
            "eta": long(left * step_s),
            "left_s": left * step_s,
            "left_h": left * step_s / 3600,
            "s": step_s,
            "ms": 1000 * step_s,
            "per_s": 1 / max(step_s, 1e-9),
            "wall": self.now - self._began,
            "time": TIME,
        }


def short(seconds: float) -> str:
    """Return a length of time as tqdm prints it."""
    minutes, rest = divmod(int(seconds), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
        if minutes >= 60
        else f"{minutes:02d}:{rest:02d}"
    )


def long(seconds: float) -> str:
    """Return a length of time as `datetime.timedelta` prints it."""
    days, rest = divmod(int(seconds), 86_400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days} day{'s' if days > 1 else ''}, {clock}" if days else clock


def by_epoch(
    step: str = "", *, head: str = "", begin: str = "", test: str = "", end: str = ""
) -> Shape:
    """Return a shape with epochs of steps, a line every few steps, and a test of five parts.

    Fields: `e`, `i`, `g` count from 0, `n`, `k`, `h` from 1: epochs, steps within one, all steps.
    """

    def run(t: Run) -> None:
        t.begin()
        t.line(head)
        for e in t.epochs():
            t.line(begin, e=e, n=e + 1)
            began_s, done = t.now, 0
            for k in _stops(t.sizes.steps, t.sizes.every):
                t.steps(k - done)
                done = k
                i, g = k - 1, e * t.sizes.steps + k - 1
                per_s = k / (t.now - began_s)
                here = long((t.sizes.steps - k) / per_s)
                at = {"e": e, "n": e + 1, "i": i, "k": k, "g": g, "h": g + 1, "here": here}
                t.line(step, **at, percent=100 * k / t.sizes.steps, share=e + k / t.sizes.steps)
            for i in range(5):
                t.validate(5)
                t.line(test, i=i, k=i + 1, e=e, n=e + 1)
            t.line(end, e=e, n=e + 1, h=(e + 1) * t.sizes.steps, took=t.now - began_s)
        t.end()

    return run


def by_step(step: str, *, head: str = "", test: str = "") -> Shape:
    """Return a shape of steps that are counted through the whole run, with an evaluation after each
    epoch. Fields are those of `by_epoch`."""

    def run(t: Run) -> None:
        t.begin()
        t.line(head)
        for e in t.epochs():
            done = 0
            for k in _stops(t.sizes.steps, t.sizes.every):
                t.steps(k - done)
                done = k
                h = e * t.sizes.steps + k
                at = {"g": h - 1, "h": h, "percent": 100 * h / t.total, "share": h / t.total}
                t.line(step, **at, rows=64 * h)
            t.validate()
            t.line(test, h=(e + 1) * t.sizes.steps)
        t.end()

    return run


def _stops(steps: int, every: int) -> Iterator[int]:
    yield from range(every, steps, every)
    yield steps


def strides(t: Run) -> Iterator[int]:
    """Let the steps of an epoch pass. Yield the number after each stretch in which a bar has time
    to show.
    """
    done, stride = 0, max(1, round(1.2 * BAR_S / t.sizes.step_s))
    while done < t.sizes.steps:
        count = min(stride, t.sizes.steps - done)
        t.steps(count)
        done += count
        yield done


def ranks(shape: Shape, prefix: str, count: int = 4) -> Shape:
    """Return a shape in which each of `count` ranks prints every line, after a prefix with its
    number, and some a little later."""

    def run(t: Run) -> None:
        shape(t)
        parts, t.parts = t.parts, []
        for at, text in parts:
            for rank in range(count):
                t.parts.append(
                    (at + t.source.uniform(0, 0.05) * rank, prefix.format(rank=rank) + text)
                )
        t.parts.sort(key=lambda part: part[0])

    return run


def again(shape: Shape, title: str, times: int, *, begin: int = 0, summary: str = "") -> Shape:
    """Return a shape that repeats a run `times` times, with a title before and a summary after
    each. Both may hold the run's number, `i`, which starts at `begin`."""

    def run(t: Run) -> None:
        for i in range(begin, begin + times):
            t.line(title, i=i, times=times)
            shape(t)
            t.line(summary, i=i, times=times)

    return run


def preceded(shape: Shape, bars: dict[str, str], share: float = 0.1) -> Shape:
    """Return a shape that first prints bars of data preparation. Each takes the share `share` of
    the time of all steps. `bars` maps a bar's label to its unit."""

    def run(t: Run) -> None:
        t.wait(t.sizes.start_s)
        work_s = share * t.sizes.epochs * t.sizes.steps * t.sizes.step_s
        for label, unit in bars.items():
            since_s, rows = t.now, 1000 * t.source.randrange(5, 200)
            for i in range(1, 201):
                t.wait(work_s / 200)
                t.bar(label, rows * i // 200, rows, since_s, unit=unit)
            t.put("\n")
        shape(t)

    return run


def resumed(t: Run) -> Run:
    """Change a run, in place, into one that continues what an earlier run has done. Return it."""
    first = max(1, round(t.source.uniform(0.2, 0.6) * t.sizes.epochs))
    t.sizes = replace(t.sizes, first=min(first, t.sizes.epochs - 1))
    return t
