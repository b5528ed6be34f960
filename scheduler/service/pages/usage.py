"""How much a job uses of its GPUs over time, as charts with their tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from scheduler.backends.local.usage import Series, Span
from scheduler.charts.chart import Chart, drawn, hovered, mark, moments, numbers, paint, rows_of
from scheduler.explain.words import duration

Measure = tuple[str, str, str, Callable[[Span], float | None], int]  # with its unit and digits
_MEASURES: tuple[Measure, ...] = (
    ("gpu-use", "GPU use", "%", lambda span: span.util_pct, 0),
    ("gpu-memory", "GPU memory", "GiB", lambda span: _gib(span.mem_used_mib), 1),
    ("gpu-power", "Power", "W", lambda span: span.power_w, 0),
)


def _gib(mib: float | None) -> float | None:
    return None if mib is None else mib / 1024


def _zone(moment: str) -> str:
    return f"{moment.replace(' ', 'T')}Z"


def usage_charts(series: Series | None) -> Sequence[Chart]:
    """Return a chart for each measure that the GPU driver gives; [] before there are two spans of
    measurements.
    """
    if series is None or len(series.spans) < 2:
        return []
    every = duration(series.step_s)
    starts = [
        datetime.fromtimestamp(series.start + span.index * series.step_s, UTC).strftime(
            "%Y-%m-%d %H:%M:%S"
        )
        for span in series.spans
    ]
    found = []
    for number, (name, title, unit, value, digits) in enumerate(_MEASURES):
        values = [value(span) for span in series.spans]
        there = [(at, v) for at, v in zip(starts, values, strict=True) if v is not None]
        if not there:
            continue
        x, y = zip(*there, strict=True)
        shown = [f"{v:.{digits}f}" for v in y]
        top = 100.0 if unit == "%" else max(*y, 1.0) * 1.1
        tips = [f"{at} UTC\n{text} {unit}" for at, text in zip(x, shown, strict=True)]
        label = f"{title}, {unit}: first {shown[0]}, most {max(y):.{digits}f}, last {shown[-1]}"
        found.append(
            Chart(
                name,
                f"{title}, {unit}",
                label,
                spec=drawn(
                    rows_of(at=[_zone(at) for at in x], use=y, tip=tips),
                    moments("at"),
                    numbers("use", ends=(0, top)),
                    mark("line", color=paint(number)),
                    hovered(),
                ),
                head=(f"from (UTC), {every} each", f"{title}, {unit}"),
                rows=[[at, text] for at, text in zip(x, shown, strict=True)],
            )
        )
    return found
