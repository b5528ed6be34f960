"""Output of the profiler on a terminal: a live view while a command runs, and the result as a
table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from profiler.period import CONFIDENT
from profiler.result import ProfileResult
from profiler.runner import Outcome
from profiler.samplers import FIELDS
from profiler.session import Live

BARS = " ▁▂▃▄▅▆▇█"
SHOWN = ("util_pct", "engine_pct", "mem_util_pct", "mem_used_mib", "tree_mem_mib", "power_w",
         "sm_clock_mhz", "sm_active_pct", "tensor_pct", "cpu_pct", "rss_mib", "read_mib_s",
         "write_mib_s")  # fmt: skip
COLOUR = {
    Outcome.FINISHED: "green",
    Outcome.LIMIT: "green",
    Outcome.FAILED: "red",
    Outcome.OUT_OF_MEMORY: "red",
    Outcome.INTERRUPTED: "yellow",
}


def sparkline(values: Any, width: int = 40, top: float | None = None) -> str:
    """Return the last readings as a line of at most `width` block characters, each the mean of up
    to four readings. Unknown readings are blank; "" if none is known. `top` is the value of a full
    block; None: the highest."""
    y = np.asarray(values, dtype=float)[-width * 4 :]
    if y.size == 0 or not np.isfinite(y).any():
        return ""
    parts = list(np.array_split(y, min(width, y.size)))
    means = [float(np.nanmean(p)) if np.isfinite(p).any() else math.nan for p in parts]
    high = top or max((m for m in means if not math.isnan(m)), default=1.0) or 1.0
    return "".join(
        " " if math.isnan(m) else BARS[min(8, max(0, round(8 * m / high)))] for m in means
    )


def shown_fields(columns: dict[str, Any]) -> list[str]:
    """Return the names of the signals to show, those of GPUs before those of the host."""
    order = {name: place for place, name in enumerate(SHOWN)}
    found = [key for key in columns if key.split(".", 1)[1] in order]
    return sorted(found, key=lambda k: (k.startswith("host"), k.split(".")[0], order[_field(k)]))


def _field(key: str) -> str:
    return key.split(".", 1)[1]


def number(value: float) -> str:
    """Return a number as text with four significant digits, or a dash if it is not finite."""
    return "-" if not math.isfinite(value) else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


class LiveView:
    """A view of a profiling run, redrawn at every tick. It is a context manager, and is passed to
    `session.profile` as `on_tick`."""

    def __init__(self, console: Console) -> None:
        self._live = RichLive(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)

    def __call__(self, live: Live) -> None:
        self._live.update(draw(live))


def draw(live: Live) -> RenderableType:
    """Return one frame of the live view: the time used, and the last readings of every signal."""
    t, columns = live.recorder.slow.arrays()
    elapsed = float(t[-1]) if t.size else 0.0
    limit = live.options.limits.seconds
    head = Table.grid(padding=(0, 1))
    head.add_row(
        f"{elapsed:5.1f} of {limit:g} s",
        ProgressBar(total=limit, completed=min(elapsed, limit), width=30),
        f"pid {live.run.pid} · {t.size} samples at {live.recorder.hz:g} Hz",
    )
    grid = Table(box=None, padding=(0, 1), show_header=False)
    for key in shown_fields(columns):
        unit = FIELDS[_field(key)][0]
        top = 100.0 if unit == "%" and not key.startswith("host") else None
        grid.add_row(
            key, number(float(columns[key][-1])), unit, Text(sparkline(columns[key], 40, top))
        )
    names = ", ".join(f"{d['channel']}: {d['name']}" for d in live.watched)
    return Panel(Group(head, grid), title=f"profiling · {names}", title_align="left")


def table(result: ProfileResult) -> RenderableType:
    """Return a profiling result as a table for the terminal."""
    ending, window = result.ending, result.window
    lines = Table.grid(padding=(0, 2))
    outcome = Text(ending.outcome.replace("_", " "), style=f"bold {COLOUR[ending.outcome]}")
    lines.add_row(
        "ended", Text.assemble(outcome, f" ({ending.detail}) after {ending.duration_s:.1f} s")
    )
    if ending.left_behind:
        lines.add_row("left behind", f"{ending.left_behind} processes, stopped")
    if ending.survivors:
        lines.add_row("NOT STOPPED", f"pids {', '.join(map(str, ending.survivors))}")
    device = ", ".join(f"{d['channel']} {d['name']}" for d in result.devices)
    lines.add_row("device", f"{device}" + ("" if result.device == "gpu" else " (no GPU figures)"))
    state = "steady" if window.steady else f"not steady: {window.reason}"
    lines.add_row(
        "window", f"{window.start_s:.1f} to {window.end_s:.1f} s, {window.samples} samples, {state}"
    )
    lines.add_row("step time", step_line(result))
    if result.progress is not None:
        own = result.progress
        lines.add_row(
            "its own progress",
            f"{own.text()}: {own.total_s:.0f} s in all ({own.low_s:.0f} to {own.high_s:.0f})",
        )
    if result.device == "gpu":
        amp = {True: "yes", False: "no", None: "not known"}[result.precision.amp]
        lines.add_row("mixed precision", f"{amp} ({result.precision.reason})")
    sampling = result.sampling
    lines.add_row(
        "sampling",
        f"{sampling.samples} at {sampling.hz:g} Hz, {sampling.cpu_share:.2%} of one core",
    )
    for note in (*sampling.notes, *filter(None, [sampling.error])):
        lines.add_row("", note)
    figures = Table(box=None, padding=(0, 2))
    for name in ("signal", "mean", "sd", "p95", "max", "unit"):
        figures.add_column(name, justify="left" if name in ("signal", "unit") else "right")
    for key in shown_fields(result.metrics):
        m = result.metrics[key]
        figures.add_row(key, *map(number, (m.mean, m.sd, m.p95, m.max)), FIELDS[_field(key)][0])
    parts: list[RenderableType] = [lines, figures]
    if result.missing:
        parts.append(Text(f"not measured: {_missing(result.missing)}", style="dim"))
    if ending.outcome in (Outcome.FAILED, Outcome.OUT_OF_MEMORY) and ending.last_lines:
        parts.append(Panel(Text("\n".join(ending.last_lines[-10:])), title="last lines"))
    return Group(*parts)


def step_line(result: ProfileResult) -> str:
    step = result.step
    if step.seconds is None:
        return f"not seen: {step.reason}"
    sure = "" if step.confidence >= CONFIDENT else ", a guess"
    return (
        f"{step.seconds:.3g} s (confidence {step.confidence:.2f}{sure}; "
        f"from {step.signal}, {step.reason})"
    )


def _missing(missing: dict[str, str]) -> str:
    """Return the reasons why fields are missing, as text: for each reason, its fields and then the
    reason."""
    by_reason: dict[str, list[str]] = {}
    for key, why in missing.items():
        by_reason.setdefault(why, []).append(key)
    return "; ".join(f"{', '.join(keys)} ({why})" for why, keys in by_reason.items())
