"""Stage `code`: writes what the code of each other stage says, so that a comment reruns nothing."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tokenize
from collections.abc import Iterator
from pathlib import Path

from features.files import write_whole
from features.given import read_text
from pipeline.stages.common import CODE, Params, Shown, unseen

IGNORED = Path(".dvcignore")  # which says what no stage reads
_LEARNED = "features", "models/bundle", "models/training"
_PLAYED = "scheduler/assembly.py", "scheduler/policies", "scheduler/simulation"
_PAIRS = "models/interference.py"
# files and folders of code that each stage reads
READS: dict[str, tuple[str, ...]] = {
    "ingest": ("pipeline/stages/common.py", "pipeline/traces", "features/schema.py"),
    "features": ("features",),
    "train": ("pipeline/stages/common.py", *_LEARNED, _PAIRS),
    "evaluate": (
        *_LEARNED, "scheduler/core", "scheduler/explain/histories.py", "scheduler/explain/words.py",
        "scheduler/charts",
    ),
    "export": ("models/bundle",),
    "simulate": (
        "pipeline/runs.py", "pipeline/online.py", "pipeline/worlds", "reproductions/baselines",
        "scheduler/core", "scheduler/explain", "scheduler/slurm/read", "scheduler/slurm/twin",
        *_PLAYED, *_LEARNED, _PAIRS,
    ),
    "learn": (
        "pipeline/worlds", "scheduler/core", "scheduler/explain/whatif", "scheduler/slurm/twin",
        *_PLAYED, *_LEARNED, _PAIRS,
    ),
    "report": ("pipeline/report", "pipeline/explain", "pipeline/worlds", "scheduler"),
}  # fmt: skip


def run(params: Params, shown: Shown = unseen) -> str:
    """Write a file for each stage, with a line for each file of its code; remove those of an
    earlier run. Return a summary."""
    shutil.rmtree(CODE, ignore_errors=True)
    CODE.mkdir(parents=True)
    ignored = not_read(read_text(IGNORED))
    files = set[Path]()
    for stage in READS:
        found = sorted(_files(stage, ignored), key=Path.as_posix)
        files.update(found)
        lines = (f"{path.as_posix()} {digest(path)}\n" for path in found)
        write_whole(CODE / f"{stage}.txt", "".join(lines))
    return f"{len(files):,} files of code"


def not_read(text: str) -> tuple[str, ...]:
    """Return the files and folders that a `.dvcignore` names from the root, without patterns."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line.strip("/") for line in lines if line.startswith("/") and "*" not in line)


def _files(stage: str, ignored: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of a stage's code."""
    for place in map(Path, (f"pipeline/stages/{stage}.py", *READS[stage])):
        for path in place.rglob("*") if place.is_dir() else [place]:
            hidden = any(part.startswith((".", "__pycache__")) for part in path.parts)
            if hidden or not path.is_file() or path.suffix in (".pyc", ".pyo"):
                continue
            if not any(f"{path.as_posix()}/".startswith(f"{name}/") for name in ignored):
                yield path


def digest(path: Path) -> str:
    """Return a digest of what a file says: of Python its tokens, of anything else its bytes."""
    data = path.read_bytes()
    if path.suffix == ".py":
        data = json.dumps(tokens_of(data.decode())).encode()
    return hashlib.sha256(data).hexdigest()


def tokens_of(text: str) -> list[str]:
    """Return the tokens of Python code, the same on every version of Python. Comments, strings
    that are statements (docstrings), blank lines and the width of indents are left out. Text
    that is no Python is returned whole.
    """
    try:
        found = list(_tokens(text))
    except (SyntaxError, tokenize.TokenError):
        return [text]
    kept: list[str] = []
    line: list[str] = []
    only_strings = True
    for kind, word in found:
        line.append(word)
        only_strings &= kind in (tokenize.STRING, tokenize.NEWLINE)
        if kind in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            if kind != tokenize.NEWLINE or not only_strings:
                kept += line
            line, only_strings = [], True
    return kept + line


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Yield kind and text of each token that says something; an f-string is one, as it was before
    Python 3.12, and is no docstring.
    """
    lines = list(io.StringIO(text))
    begins = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
    marks = {tokenize.NEWLINE: "\n", tokenize.INDENT: "indent", tokenize.DEDENT: "dedent"}
    silent = (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER, tokenize.ENCODING)
    depth, since = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == begins[0]:
            since = since if depth else token.start
            depth += 1
        elif token.type == begins[1]:
            depth -= 1
            if not depth:
                yield tokenize.OP, _between(lines, since, token.end)
        elif not depth and token.type not in silent:
            formatted = token.type == tokenize.STRING and "f" in token.string[:2].lower()
            kind = tokenize.OP if formatted else token.type
            yield kind, marks.get(token.type, token.string)


def _between(lines: list[str], since: tuple[int, int], until: tuple[int, int]) -> str:
    """Return the text from one place, (line from 1, column), to another."""
    (first, start), (last, end) = since, until
    if first == last:
        return lines[first - 1][start:end]
    inner = lines[first : last - 1]
    return "".join([lines[first - 1][start:], *inner, lines[last - 1][:end]])
