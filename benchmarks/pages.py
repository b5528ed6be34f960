"""Finds what the project's Markdown pages link to, and which commands they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import typer

from pipeline.app import COMMANDS, Lazy, app

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "benchmarks",
    "data",
    "deploy",
    "docs",
    "models",
    "pipeline",
    "profiler",
    "reproductions",
    "scheduler",
)

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?<=\n\n)((?: {4}[^\n]*\n)+)")
_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """Return every Markdown page of the project, except those that `make docs` and measuring
    campaigns write.
    """
    inside = (path for name in FOLDERS for path in (ROOT / name).rglob("*.md"))
    made = {*(ROOT / "docs" / "_build").rglob("*.md"), *ROOT.glob("data/profiles/*/README.md")}
    return sorted({*ROOT.glob("*.md"), *inside} - made)


def words(page: Path) -> int:
    """Return the number of words of a page, tables and code included."""
    return len(page.read_text().split())


def broken_links(page: Path) -> list[str]:
    """Return the links of a page to files that do not exist, or to headings that the file lacks."""
    text = _FENCE.sub("", page.read_text())
    found = [link for link in _LINK.findall(text) if "://" not in link and "mailto:" not in link]
    return [link for link in found if not _leads_somewhere(page, link)]


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not there.exists():
        return False
    return not anchor or anchor in _anchors(there.read_text())


def _anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, spelled as GitHub spells them in links."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+)$", _FENCE.sub("", text), re.MULTILINE):
        plain = re.sub(r"\]\([^)]*\)", "", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        while name in found:
            name += "-1"
        found.add(name)
    return found


def blocks(page: Path, language: str | None = None) -> list[str]:
    """Return the texts of a page's fenced blocks of code; where `language` is given, only those of
    that language.
    """
    found = _FENCE.findall(page.read_text())
    return [body for _, name, body in found if language is None or name == language]


def commands(page: Path) -> Iterator[list[str]]:
    """Yield each command of the project that a page shows, as a list of words that begins after the
    program's path.
    """
    text = page.read_text()
    shown = [body for _, _, body in _FENCE.findall(text)]
    shown += _INDENTED.findall(_FENCE.sub("\n", text))
    for line in "\n".join(shown).replace("\\\n", " ").splitlines():
        line = re.sub(r"^ *(\$ )?(\w+=\S* )*(\.venv/bin/)?", "", line)
        if re.match(r"(pellucid|make|python -m benchmarks\.\w+)( |$)", line):
            yield _words(line)


def _words(line: str) -> list[str]:
    """Return the words of a line as a shell splits it, up to a comment, a pipe or a
    redirection.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    found = []
    for word in lexer:
        if set(word) <= set("|&;<>"):
            break
        found.append(word)
    return found


def mistake(said: list[str]) -> str | None:
    """Return what is wrong with a command that a page shows: a command, option, target of make or
    module that does not exist. Return None if nothing is.
    """
    program, *rest = said
    if program == "make":
        wrong = [word for word in rest if "=" not in word and word not in targets()]
        return f"no target {wrong[0]}" if wrong else None
    if program == "python":
        path = ROOT / rest[1].replace(".", "/")
        return None if path.is_dir() or path.with_suffix(".py").is_file() else f"no {rest[1]}"
    return _wrong_option(rest)


def targets() -> set[str]:
    """Return the targets of the Makefile and of the files that the Makefile includes."""
    texts = [path.read_text() for path in (ROOT / "Makefile", *ROOT.glob("*.mk"))]
    return set(re.findall(r"^([a-z0-9-]+):", "\n".join(texts), re.MULTILINE))


def _wrong_option(rest: list[str]) -> str | None:
    """Return what is wrong with the words of a `pellucid` command: no such command, or an
    option it lacks; None if nothing is. Words after `--` are another program's.
    """
    words = rest[: rest.index("--")] if "--" in rest else rest
    if not words or words[0] not in COMMANDS:
        known = not words or words[0].startswith("-") or words[0] in ("COMMAND", "...")
        return None if known else f"no command {words[0]}"
    group = Lazy(name="pellucid")
    with typer.main.get_command(app).make_context("pellucid", [words[0]]) as context:
        found = group.get_command(context, words[0])
    taken = {"--help"}
    for command in (found, *getattr(found, "commands", {}).values()):
        for param in command.params:
            taken |= {*param.opts, *param.secondary_opts}
    options = (word.partition("=")[0] for word in words[1:] if re.match(r"--?[a-z]", word))
    return next((f"{words[0]} has no {name}" for name in options if name not in taken), None)
