"""Wraps the help of commands for the width of the terminal. Its texts are docstrings, which are
wrapped for the source file.

A paragraph of prose becomes one line, which typer wraps when it prints it. An example is a command
to be copied: if it is too long, it continues after a backslash, and its comment, which a shell does
not join, is put above it.
"""

from __future__ import annotations

import re
import shutil
import textwrap
from typing import Any

MARGIN = 2  # columns that the printer keeps free
INDENT = "  "


def reflow(text: str, width: int) -> str:
    """Return the text of a docstring with each paragraph of prose on one line, and with
    examples wrapped for a terminal of `width` columns. Lists and tables stay as they are."""
    return "\n\n".join(_paragraph(one, width) for one in re.split(r"\n[ \t]*\n", text.strip("\n")))


def _paragraph(text: str, width: int) -> str:
    lines = text.splitlines()
    if not lines[0].startswith(INDENT):
        if any(line.startswith((" ", "- ", "* ")) for line in lines):
            return text  # a list or a table: its lines are its own
        return " ".join(lines)
    return _example(" ".join(line.strip().removesuffix("\\").strip() for line in lines), width)


COMMENT = "  # "
KEPT = "\N{NO-BREAK SPACE}"
# what a line does not end within: what is quoted, and an option and its value
_QUOTED = r"""'[^']*'|"[^"]*\""""
_TOGETHER = re.compile(rf"(?<!\S)--?[a-zA-Z][\w-]* (?!-)(?:{_QUOTED}|\S+)|{_QUOTED}")


def _example(command: str, width: int) -> str:
    """Return a command as an indented line. If it is too long, it is split into several lines with
    backslashes, which a shell joins again. A comment that does not fit is put above the command.
    """
    room = width - MARGIN - len(INDENT) - 2
    command, mark, comment = command.partition(COMMENT)
    if mark and len(f"{command}{mark}{comment}") <= room:
        return f"{INDENT}{command}{mark}{comment}"
    if mark:
        above = textwrap.wrap(comment, room - 2, break_long_words=False, break_on_hyphens=False)
        lines = "\n".join(f"{INDENT}# {line}" for line in above)
        return f"{lines}\n{_example(command.rstrip(), width)}"
    held = _TOGETHER.sub(lambda found: found[0].replace(" ", KEPT), command)
    parts = textwrap.wrap(
        held, room, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(f"{INDENT}{part}" for part in parts).replace(KEPT, " ")


def reflowed(command: Any) -> Any:
    """Reflow the help of a command, or of a group and all of its commands, for the width of the
    terminal. Return the command or group."""
    width = shutil.get_terminal_size().columns
    if command.help:
        command.help = reflow(command.help, width)
    for one in getattr(command, "commands", {}).values():
        reflowed(one)
    return command
