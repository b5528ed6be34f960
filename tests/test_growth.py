"""What reads text that others wrote takes time linear in its length, whatever they wrote."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache

import pytest

from features.clock import read_seconds
from features.commands import of_command, of_lines, of_settings, printed, work_of
from features.names import normalise
from features.options import with_options
from features.programs import imported, settings_named
from features.recipes import of_target
from features.shell import of_script
from pipeline.replay.causes import cause_of
from profiler.ends import memory_complaint
from profiler.progress.formats import FORMATS, read
from profiler.progress.reader import Reader
from scheduler.backends.local.output import _shown as shown
from scheduler.slurm.read import parse, request, tres
from tests.growth import EXPONENT, PACKAGES, Found, Read, growth, patterns, texts

# put together while the program runs, from what the program itself says
MADE = {
    "features.commands:f\"(?:{'|'.join(names.split())})$\"": "held in a variable: it is measured",
    "profiler.progress.table:pattern": "rows of FORMATS, each measured",
    "profiler.progress.table:made": "of lines with places: tests/profiler/test_formats_of_ones_own",
    "pipeline.traces.elements:',\\\\s*(?=\\\\{\\\\s*\"(?:' + keys + ')\"\\\\s*:)'": "",
    "pipeline.traces.described:pattern": "of whoever describes the trace, on 1,000 characters",
    "scheduler.slurm.read.site:'(?:^|\\\\s)' + re.escape(begin)": "a fixed text",
}


@cache
def found() -> tuple[Found, ...]:
    return tuple(patterns())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_pattern_takes_time_linear_in_the_text(package: str) -> None:
    worse = {
        (one.where, use, make): exponent
        for one in found()
        if one.where.startswith(package) and one.pattern is not None
        for use in one.uses
        for make in texts(one.pattern)
        if (exponent := growth(one.read(use), make)) > EXPONENT
    }
    assert worse == {}


def test_no_pattern_is_left_out() -> None:
    assert {one.where for one in found() if one.pattern is None} == MADE.keys()
    assert len(found()) > 120
    assert {row.pattern for row in FORMATS} <= {one.pattern for one in found()}


@pytest.mark.parametrize(
    ("pattern", "use"),
    [
        (r"\d+%", "search"),
        (r"a.*b", "search"),
        (r"(.*?)\s*(s|m|min|h|d)", "fullmatch"),
        (r"^;\s*(\w+):\s*(.*?)\s*$", "search"),
        (r"\s+$", "search"),
        (r"x\d*\.?\d+e", "search"),
        (r"\([^)]*\)", "sub"),
        (r"(a+)+$", "match"),
        (r"(\w|\d\d)*!", "fullmatch"),
        (r"^\s*\d+/\d+ .*?\d+%x", "search"),
        (rb"[ \t]+$", "sub"),
    ],
)
def test_a_planted_pattern_is_found(pattern: str | bytes, use: str) -> None:
    one = Found("planted", re.compile(pattern), (use,))
    assert any(growth(one.read(use), make) > EXPONENT for make in texts(one.pattern))


# --- what applies them ----------------------------------------------------------------------------

PUMPS = [
    *" \t\n\0+-_:;.,|/\\=%[](){}<>'\"#@!019eaZé\x1b",
    *("1 ", "1:", "1_", "1-", "1,", "[1", "[1]", "[1-9]", "(1", "--a=", "a=1 ", "A=b ", "gpu:1,"),
    *('{"a":', "\x1b]", "\x1b[1", "poch 1/", "loss': ", "1/2 ", "of ", " on ", "\\\n", "1e1"),
]
READERS: dict[str, Read] = {
    "a line of output": read,
    "output": lambda text: Reader().feed(text.encode(), 1.0),
    "a progress file": lambda text: Reader().words(text, 1.0),
    "a command": lambda text: of_command(["python", text, "--epochs", text, f"--steps={text}"]),
    "a command's work": lambda text: work_of(["python", f"--epochs=3{text}", "--epochs=3", text]),
    "a shell's work": lambda text: work_of(["bash", "-c", text]),
    "a shell script": lambda text: of_script(text, [text]),
    "options of a script": lambda text: with_options(
        f"while getopts e: o; do\ncase $o in\n{text}\nesac\ndone", [text]
    ),
    "targets of make": lambda text: of_target(text, "make", [text]),
    "targets of just": lambda text: of_target(text, "just", [text]),
    "settings": lambda text: of_settings({"epochs": text, text: 3}),
    "plain settings": of_lines,
    "imports of a program": imported,
    "files that a program names": settings_named,
    "a printed setting": printed,
    "a time": read_seconds,
    "a name": normalise,
    "a reason of Slurm": cause_of,
    "last lines": lambda text: memory_complaint([text]),
    "shown output": shown,
    "fields of Slurm": parse.fields,
    "host list": parse.hosts,
    "indices": parse.indices,
    "task numbers": parse.task_numbers,
    "TRES": tres.gpu_types,
    "counts": tres.counts,
    "memory": tres.mib,
    "a script": lambda text: request.script_options(text.splitlines()),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_takes_time_linear_in_the_text(name: str) -> None:
    worse = {
        (pump, start, end): exponent
        for pump in PUMPS
        for start in ("", "1")
        for end in ("", "x:")
        if (exponent := growth(_tried(READERS[name]), _of(pump, start, end))) > EXPONENT
    }
    assert worse == {}


def _of(pump: str, start: str, end: str) -> Callable[[int], str]:
    return lambda size: start + pump * (size // len(pump)) + end


def _tried(reader: Read) -> Read:
    """The same; that it refuses a text is no matter here."""

    def trying(text: str) -> None:
        with suppress(ValueError, KeyError):
            reader(text)

    return trying
