"""What a line of output says of how far a job is, by the formats of `formats.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from profiler.progress import table
from profiler.progress.bars import (
    AT_EPOCH,
    COUNTS_EPOCHS,
    COUNTS_STEPS,
    OF_EPOCH,
    TORCHTUNE,
    WORK,
    is_named,
    is_other,
    says_other,
    works,
)
from profiler.progress.columns import Columns
from profiler.progress.names import TABLE
from profiler.progress.table import Format, Scope


class Mark(NamedTuple):
    """One number read from a line.

    Attributes:
        unit: ``fold``, ``epoch``, ``step``, ``percent``, or ``eta`` (seconds left).
        of: how many there are, None where the line does not say.
        scope: steps of the whole ``run``, of an ``epoch``, or "" where that cannot be known.
        label: tells the bars of one format apart.
        ends: the number is printed when its unit is done, as far as the line shows; False: when
            it begins.
        exact: it counts what is done, and is printed at any time.
        sure: the line tells of a validation, so that the unit is done.
        named: False: a bar whose label does not say that it is of the training.
        based: numbering is known to begin with 1 (it has been made so).
        last: where numbering begins with 0, `of` is the number of the last one.
    """

    format: str
    unit: Literal["fold", "epoch", "step", "percent", "eta"]
    n: float
    of: float | None = None
    scope: Scope = ""
    label: str = ""
    ends: bool = False
    based: bool = True
    last: bool = False
    exact: bool = False
    sure: bool = False
    named: bool = True


FORMATS = table.shipped()
_PARTS = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|d|h|m|s)")
_LONG = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FIGURES = re.compile(r"(?<!:\d)\d\.\d|[=:] ?\.?\d++e[+-]?\d")  # no time: "12:00:00.123"
_VALIDATED = re.compile(r"(?<![a-z])[Vv]al(?:id(?:ation)?)?(?![a-z])|(?<![a-z])[Tt]est_?[ a]")
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x08"
)
# of whom a line is, as launchers put it before: Ray, torchrun, mpirun, srun --label
_PREFIX = re.compile(
    r"^(?:\(\w{1,40} pid=\d{1,9}[^)]{0,80}\) ?|\[(?:default|rank|RANK )\d{1,5}\]:? ?"
    r"|\[\d{1,5}(?:,\d{1,5})?\](?:<std(?:out|err)>)?: ?|\d{1,4}: (?=\S))"
)
_PROMISING = re.compile(
    r"\d ?[/%]|EPOCH|frames|hours|Ep\.|^tick|\d of \d|poch|^Chain|"
    r"[Ss]tep|[Ii]ter|pdate|eta ?[:=]|ETA|eta \d|[Rr]emaining|left|━|[Ff]old|FOLD|[Ss]eed"
    r"|[Tt]rial|new study| done|\"progress\"|^\[?\d|\bep[ =:]|^Train loss|\d[ms]\s*+$"
)
LINE = 1000  # characters of a line that are looked at


def read(line: str) -> list[Mark]:
    """Return the numbers that a line of output states. Most lines, and bars about something else
    than training, state none.
    """
    if len(line) > LINE:
        line = line[:LINE]
    if _PROMISING.search(line) is None and not table.own():
        return []
    line = plain(line)
    if '"progress"' in line:
        own = explicit(line)
        if own is not None:
            return [own]
    line = _PREFIX.sub("", line)
    begin = line.find("{'loss'")
    if begin > 0 and "%|" in line:  # behind a bar that no line break ends
        return [*_by_rows(line[:begin]), *_by_rows(line[begin:])]
    return _by_rows(line)


def plain(line: str) -> str:
    """Return a line without the codes that colour it or move the cursor."""
    return _ESCAPES.sub("", line) if "\x1b" in line or "\x08" in line else line


def in_columns(columns: Columns, line: str) -> list[Mark]:
    """Return the numbers that a row of a table states; none if the line is no row of it."""
    alone = columns.step is None
    return [
        Mark(TABLE, unit, n, ends=True, based=False, sure=alone and columns.sure)
        if unit == "epoch"
        else Mark(TABLE, unit, n, of=100.0 if unit == "percent" else None, scope="run")
        for unit, n in columns.row(line)
    ]


def _by_rows(line: str) -> list[Mark]:
    found: dict[str, Mark] = {}
    for row in (*table.own(), *FORMATS):
        match = row.pattern.search(line) if row.hint in line else None
        if match is None:
            continue
        if _is_other(row, line, match):
            return []
        marks = _marks(row, line, match)
        if not row.general:
            return list(marks)
        for mark in marks:
            found.setdefault(mark.unit, mark)
    epoch = found.get("epoch")
    if epoch is not None and "step" in found:  # with a step, it is under way
        found["epoch"] = epoch._replace(ends=False)
    return list(found.values())


def explicit(text: str) -> Mark | None:
    """Return the progress that a job states in JSON: `{"progress": {"done": 1200, "of": 5000}}` or
    `{"progress": 0.24}`. Return None where the text is neither.
    """
    try:
        value = json.loads(text[text.index("{") :])["progress"]
        if isinstance(value, dict):
            done, of = float(value["done"]), float(value["of"])
        else:
            done, of = 100.0 * float(value), 100.0
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    if not 0 <= done <= of or not 0 < of <= 1e15:
        return None
    whole = not isinstance(value, dict)
    return Mark(
        format="its own words",
        unit="percent" if whole else "step",
        n=done,
        of=of,
        scope="run",
        label="explicit",
    )


def _is_other(row: Format, line: str, match: re.Match[str]) -> bool:
    groups, label = match.groupdict(), row.label(line, match)
    if label is not None:
        return is_other(label, line, match.start(), match.end())
    if row.name == "Keras" or groups.get("fold") is not None:
        return False
    return says_other(line, match.start())


def _marks(row: Format, line: str, match: re.Match[str]) -> Iterator[Mark]:
    groups = match.groupdict()
    step, steps = _float(groups.get("step")), _float(groups.get("steps"))
    label = row.label(line, match)
    if label is not None:
        yield from _of_bar(row, line, match, label)
        return
    if groups.get("study") or groups.get("fold"):
        yield _fold(row, groups)
    if groups.get("epoch"):
        figures = step is None and _FIGURES.search(line) is not None
        yield _epoch(row, groups, figures, figures and _VALIDATED.search(line) is not None)
    if step is not None:
        yield Mark(format=row.name, unit="step", n=step, of=steps, scope=row.scope)
    if groups.get("percent"):
        yield Mark(
            format=row.name, unit="percent", n=float(groups["percent"]), of=100.0, scope=row.scope
        )
    if hours := groups.get("hours"):
        yield Mark(row.name, "eta", 3600.0 * float(hours), scope="run")
    if left := groups.get("eta") or groups.get("span"):
        # a trainer's own is of the run: what is left of an epoch is not in its row
        yield Mark(row.name, "eta", _seconds(left), scope="" if row.general else "run")


def _of_bar(row: Format, line: str, match: re.Match[str], before: str) -> Iterator[Mark]:
    groups = match.groupdict()
    step, steps, scope = _float(groups.get("step")), _float(groups.get("steps")), row.scope
    text = before.strip(" :-.\t")
    label = re.sub(r"[\d.]+", "0", text)[-40:]
    if step is None:
        return
    if text.lower() in COUNTS_EPOCHS:
        yield Mark(row.name, "epoch", step, steps, label=label, ends=True, exact=True)
        return
    found = OF_EPOCH.search(text) or TORCHTUNE.search(text)
    if found is not None:
        of = found.groupdict().get("of")
        based = found.re is TORCHTUNE
        yield Mark(row.name, "epoch", float(found[1]), _float(of), based=based)
        scope = "epoch"
    elif text.lower() in COUNTS_STEPS:
        scope = "run"
    elif (found := AT_EPOCH.search(line, match.end())) is not None:
        yield Mark(row.name, "epoch", float(found[1]), _float(found["of"]), based=False)
    named = is_named(text, line, match.end())
    if works(text, line, match.end()):
        label, named = WORK + label, True
    yield Mark(
        format=row.name, unit="step", n=step, of=steps, scope=scope, label=label, named=named
    )


def _fold(row: Format, groups: dict[str, str | None]) -> Mark:
    """Return a fold's mark: how many folds are over if the format says where it counts from,
    otherwise the number of the fold at hand.
    """
    n, over = _float(groups.get("fold")), row.base is not None
    done = 0.0 if n is None else n + 1.0
    return Mark(
        format=row.name,
        unit="fold",
        n=done if over else done - 1.0,
        of=_float(groups.get("folds")),
        ends=over,
        based=over,
        exact=over,
    )


def _epoch(row: Format, groups: dict[str, str | None], figures: bool, sure: bool) -> Mark:
    """Return an epoch's mark, its number counted from 1 if the format says where it counts
    from.

    Args:
        figures: the line holds figures, such as a loss; it comes when the epoch is done, or
            within.
        sure: it comes when the epoch is done.
    """
    n, of = _float(groups["epoch"]) or 0.0, _float(groups.get("epochs"))
    if row.name == "Hugging Face":
        return Mark(row.name, "epoch", n, of, ends=True, exact=True)  # 0.12: done so far
    if row.base == 0:
        n, of = n + 1, of + 1 if of is not None and row.last else of
    timed = groups.get("done") is not None
    return Mark(
        format=row.name,
        unit="epoch",
        n=n,
        of=of,
        ends=figures or timed,
        based=row.base is not None,
        last=row.last,
        sure=sure or timed,
    )


def _float(text: str | None) -> float | None:
    if not text:
        return None
    scale = {"k": 1e3, "M": 1e6, "G": 1e9}.get(text[-1], 1.0)
    try:
        return float(text.rstrip("kMG").replace(",", "")) * scale
    except ValueError:  # "1.2.3"
        return None


def _seconds(text: str) -> float:
    if text[-1] in "sm":
        return sum(_LONG[unit] * float(n) for n, unit in _PARTS.findall(text))
    days, comma, clock = text.rpartition(", ")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + (86400.0 * float(days.split()[0]) if comma else 0.0)
