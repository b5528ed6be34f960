"""Every command's help, on a narrow terminal and a wide one: filled lines, and examples whole."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pipeline.app import COMMANDS, app
from pipeline.help_text import reflow
from scheduler.core.request import FIELDS, OF_JOB, TRIED

WIDTHS = (80, 120)


@cache
def every() -> tuple[tuple[str, ...], ...]:
    """The words of every command, and of those in groups."""
    found: list[tuple[str, ...]] = []
    group: Any = get_command(app)
    for name in COMMANDS:
        command = group.get_command(None, name)
        inner = getattr(command, "commands", {})
        found += [(name, one) for one in inner] or [(name,)]
    return tuple(found)


def described(words: tuple[str, ...], width: int) -> list[str]:
    """What stands between the usage and the options, line by line."""
    said = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": str(width)})
    assert said.exit_code == 0, said.output
    lines = [line.rstrip() for line in said.output.splitlines()]
    first = next(i for i, line in enumerate(lines) if "Usage:" in line)
    first += lines[first:].index("")  # a usage may take lines
    last = next((i for i, line in enumerate(lines) if line.startswith("╭")), len(lines))
    return lines[first:last]


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines without a blank one."""
    found: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            found.append(line)
        elif found:
            yield found
            found = []


def examples(words: tuple[str, ...]) -> list[str]:
    """The commands in a docstring, each as one line."""
    group: Any = get_command(app)
    command = group.get_command(None, words[0])
    for word in words[1:]:
        command = command.commands[word]
    text = inspect.cleandoc(command.callback.__doc__ or "")
    parts = (one for one in re.split(r"\n\s*\n", text) if one.startswith("  "))
    return [" ".join(one.replace("\\\n", " ").split()) for one in parts]


@pytest.mark.parametrize("words", every(), ids=" ".join)
def test_every_option_is_explained(words: tuple[str, ...]) -> None:
    command: Any = get_command(app).get_command(None, words[0])  # type: ignore[attr-defined]
    for word in words[1:]:
        command = command.commands[word]
    helps = {one.name: one.help or "" for one in command.params if one.name != "help"}
    assert not [name for name, text in helps.items() if len(text.split()) < 3], helps


def test_a_trial_takes_only_what_may_move_a_start() -> None:
    command: Any = get_command(app).get_command(None, "whatif")  # type: ignore[attr-defined]
    asked = {one.name for one in command.params if one.name in FIELDS}
    assert asked == {*TRIED} - {"notify", "comment"}
    assert asked <= {*OF_JOB, "priority"}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("words", every(), ids=" ".join)
def test_help_is_wrapped_once(words: tuple[str, ...], width: int) -> None:
    lines = described(words, width)
    assert max(map(len, lines)) <= width
    shown = []
    for lines_of in paragraphs(lines):
        comments = [line.strip() for line in lines_of if line.strip().startswith("# ")]
        lines_of = [line for line in lines_of if not line.strip().startswith("# ")]
        text = " ".join(lines_of)
        if "\\" in text or re.match(r" +(pellucid|sacct|echo) ", lines_of[0]):
            assert all(line.endswith(" \\") for line in lines_of[:-1]), "a shell joins its lines"
            assert "#" not in text or len(lines_of) == 1, "no comment goes on after a backslash"
            above = (
                ["  #", " ".join(line.removeprefix("# ") for line in comments)] if comments else []
            )
            shown.append(" ".join(" ".join([text.replace(" \\", ""), *above]).split()))
            continue
        for line, after in pairwise(lines_of):
            room = width - len(line) - 1
            assert len(after.split()[0]) + 1 > room - 1, f"a line ends too early: {line!r}"
    for example in examples(words):
        assert example in shown


def test_what_is_one_word_for_a_shell_stays_on_its_line() -> None:
    text = "Do it.\n\n  pellucid submit --name 'a name of many words' --gpus 2 -- bash -c 'a; b'"
    narrow = reflow(text, 40).split("\n\n")[1]
    joined = narrow.replace("\\\n", " ")
    assert shlex.split(joined) == shlex.split(text.split("\n\n")[1])
    assert narrow.count("\\\n") >= 2
    assert "--gpus 2" in narrow


def test_prose_is_one_line_and_a_list_keeps_its_own() -> None:
    assert reflow("One two\nthree.\n\nFour\nfive.", 80) == "One two three.\n\nFour five."
    assert reflow("Either\n- this\n- that", 80) == "Either\n- this\n- that"
    assert reflow("Give ids, or\n--all for all.", 80) == "Give ids, or --all for all."
