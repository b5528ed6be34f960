"""Output that the commands share: progress on a terminal, tables, and errors of one line."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pipeline.errors import UserError

EVERY_S = 60.0  # between two lines of progress, where there is no terminal


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors that the user can correct into UserError, which is shown as one line, with exit
    status 2.

    For bad input, the packages of this project raise their own subclasses of `ValueError`. A plain
    ValueError is a defect and keeps its traceback.
    """
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        if type(error).__module__.split(".")[0] not in _OURS:
            raise
        raise UserError(str(error).replace("\n", " ")) from None
    except BrokenPipeError:
        raise  # whoever read the output is gone: no error of a file
    except OSError as error:
        raise UserError(f"{error.filename or 'a file'}: {error.strerror or error}") from None
    except Exception as error:
        if "sqlalchemy" not in sys.modules or not (line := _damage(error)):
            raise
        raise UserError(line) from None


def _damage(error: Exception) -> str:
    """Return a line about the damaged database that caused an error; "" if it has another cause."""
    from scheduler.service.log.store.soundness import WHAT_TO_DO, is_damage

    cause = getattr(error, "orig", error)
    return f"the database is damaged ({cause}); {WHAT_TO_DO}" if is_damage(error) else ""


_OURS = {"features", "models", "profiler", "scheduler", "pipeline", "reproductions"}


@contextmanager
def bar(text: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; elsewhere print a line on standard error, at most once
    a minute. Yield a function to call with the amount done, of `total`. With `quiet`, show
    nothing."""
    if quiet:
        yield lambda _: None
        return
    if not sys.stdout.isatty():
        yield _minutely(text, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done: progress.update(task, completed=done)


def _minutely(text: str, total: int) -> Callable[[int], None]:
    """Return a function to call with the amount done. It prints `text` with the amount on standard
    error, at most once a minute."""
    printed_at = time.monotonic()

    def done(amount: int) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= EVERY_S:
            printed_at = time.monotonic()
            print(f"{text}: {amount:,} of {total:,}", file=sys.stderr, flush=True)

    return done


@contextmanager
def alive(text: str, every_s: float = 5.0) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; elsewhere print a line every `every_s` seconds, even if
    nothing has been done since.

    Yields a function that sets (amount done, whole amount).
    """
    if sys.stdout.isatty():
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
        with Progress(*columns, TextColumn("left:"), Remaining(), transient=True) as progress:
            task = progress.add_task(text, total=None)
            yield lambda done, of: progress.update(task, completed=done, total=of)
        return
    began, known, over = time.monotonic(), [0, 0], threading.Event()
    first: list[float] = []  # when which part was done first: before it came start-up, too
    last = [began]  # when the last part was done

    def shown(done: int, of: int) -> None:
        known[:], last[:] = (done, of), [time.monotonic()]
        if done and not first:
            first[:] = last[0], done

    def tick() -> None:
        while not over.wait(every_s):
            (done, of), now = known, time.monotonic()
            spent, left = now - began, ""
            if first:
                parts = done - first[1]
                left = _left(last[0] - first[0], parts, of - done, since_s=now - last[0])
            far = f"{done} of {of}, " if of else ""
            print(f"{text}: {far}{spent:.0f} s{left}", flush=True)

    clock = threading.Thread(target=tick, daemon=True)
    clock.start()
    try:
        yield shown
    finally:
        over.set()
        clock.join()


def _left(spent_s: float, parts: float, more: int, *, since_s: float) -> str:
    """Return a text about the time left, such as ", about 9 s left". Return "" if fewer than two
    parts are done, or if the time estimated for the remaining ones has passed.

    Args:
        spent_s: seconds that the parts done took.
        parts: number of parts done.
        more: number of parts that remain.
        since_s: seconds since the part under way began.
    """
    left_s = spent_s / parts * more - since_s if parts >= 2 else 0.0
    return f", about {left_s:.0f} s left" if left_s > 0 else ""


@contextmanager
def step(text: str, quiet: bool) -> Iterator[None]:
    """Show a spinner on a terminal while the block runs. Show nothing elsewhere, or with
    `quiet`."""
    if quiet or not sys.stdout.isatty():
        yield
        return
    from rich.console import Console

    with Console().status(text):
        yield


# figure, heading with its unit, how to print it
_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("avg_jct_s", "mean JCT, s", "{:,.0f}".format),
    ("avg_jct_se_s", "std. error", "{:,.0f}".format),
    ("avg_queue_s", "mean wait, s", "{:,.0f}".format),
    ("p99_queue_s", "p99 wait, s", "{:,.0f}".format),
    ("p999_queue_s", "p99.9 wait, s", "{:,.0f}".format),
    ("max_queue_large_s", "longest wait of >8 GPUs, h", lambda value: f"{value / 3600:,.0f}"),
    ("ftf_user_p99", "p99 user: JCT / duration", "{:,.1f}".format),
    ("makespan_s", "makespan, h", lambda value: f"{value / 3600:,.0f}"),
    ("gpu_utilisation", "GPU-time in use", "{:.1%}".format),
    ("packed_jobs", "jobs packed", "{:,.0f}".format),
    ("preemptions", "jobs stopped", "{:,.0f}".format),
    ("cpu_s", "CPU, s", "{:.1f}".format),
)


def table(title: str, rows: Sequence[Mapping[str, Any]], *, of: str = "policy") -> None:
    """Print a table of key figures, one row per policy. Figures that no row has are left out. `of`
    names the first column, if the rows are not policies."""
    from rich.table import Table

    out = Table(title=title, title_justify="left")
    out.add_column(of)
    loops = len({row.get("loop") for row in rows}) > 1
    if loops:
        out.add_column("loop")
    cells = {
        heading: ["-" if row.get(key) is None else show(row[key]) for row in rows]
        for key, heading, show in _FIGURES
        if any(row.get(key) is not None for row in rows)
    }
    for heading in cells:
        out.add_column(heading, justify="right")
    for row, figures in zip(rows, zip(*cells.values(), strict=True), strict=True):
        out.add_row(str(row[of]), *([str(row["loop"])] if loops else []), *figures)
    print_table(out)


def metrics_table(title: str, models: Mapping[str, Mapping[str, float]]) -> None:
    """Print a table of the error figures of models, one row per model."""
    from rich.table import Table

    names = list(next(iter(models.values())))
    out = Table(title=title, title_justify="left")
    out.add_column("model")
    for name in names:
        out.add_column(name, justify="right")
    for model, row in models.items():
        out.add_row(model, *(f"{row[name]:.4g}" for name in names))
    print_table(out)


def print_table(out: Any) -> None:
    """Print a table of the package rich, as wide as the terminal, or 160 columns wide if the output
    is no terminal."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 160).print(out)
