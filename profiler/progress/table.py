"""Formats as data: the shipped table, and lines that a site or a user adds in a file of its own.

A format of one's own is a line with places for its numbers, and a sample (TOML):

    [[format]]
    name = "our trainer"
    line = "[it {step} of {steps}; left {eta}]"
    sample = "12:00:00 [it 120 of 5,000; left 1:02:03] loss 0.3"
    scope = "run"  # steps of the whole "run", or of an "epoch"; without it that is found out
    first = 1      # number of the first epoch, or fold; without it that is found out

Places: {epoch} {epochs} {step} {steps} {fold} {folds} {percent} {eta}, and once {} for any text. No
pattern is taken from users: what a line becomes takes time linear in what it is searched in.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from features.given import read_text

Scope = Literal["run", "epoch", ""]
VARIABLE = "PELLUCID_PROGRESS_FORMATS"  # the file of one's own, for this process and its children
MOST_BYTES, MOST_ROWS, LONGEST = 65_536, 100, 300
_COUNT = r"\d{1,15}+(?:,\d{3}){0,4}+"
_ETA = r"(?P<eta>(?:\d{1,4} days?, )?\d{1,4}:\d\d:\d\d|\d{1,4}:\d\d)(?![\d:])"
_SPAN = r"(?P<eta>(?:\d{1,4}d )?(?:\d{1,4}h )?(?:\d{1,4}m )?\d{1,4}(?:\.\d{1,3})?m?s)"
_PARTS = {
    "(?&BOTH)": r"(?P<step>\d+) ?/ ?(?P<steps>\d+)",
    "(?&ETA)": _ETA,
    "(?&SPAN)": _SPAN,
}
_PLACES = {
    **{n: f"(?P<{n}>{_COUNT})" for n in ("epoch", "epochs", "step", "steps", "fold", "folds")},
    "percent": r"(?P<percent>\d{1,3}(?:\.\d{1,9})?)",
    "eta": f"(?:{_ETA}|{_SPAN.replace('eta', 'span')})",
    "": ".{0,80}?",
}
_PLACE = re.compile(r"\{(\w{0,20})\}")
_SAYS = {"epoch", "step", "fold", "percent", "eta"}


class FormatsError(ValueError):
    """Raised for a file of formats that cannot be used; names the row and the reason."""


@dataclass(frozen=True)
class Format:
    """A row of the table of formats.

    Attributes:
        hint: a text without which no line is of this format, so that most are not searched.
        base: number of the first epoch, or fold; None where scripts differ.
        general: no format of one trainer.
        pipes: how many ``|`` the label of a bar may hold; None: the format has no label.
    """

    name: str
    hint: str
    pattern: re.Pattern[str]
    samples: tuple[str, ...]
    scope: Scope = "epoch"
    base: int | None = None
    last: bool = False
    general: bool = False
    pipes: int | None = None

    def label(self, line: str, match: re.Match[str]) -> str | None:
        """Return the text before a bar; None if the format has no label."""
        if self.pipes is None:
            return None
        return "|".join(line[: match.start()].rsplit("|", self.pipes + 1)[-self.pipes - 1 :])


def shipped() -> tuple[Format, ...]:
    """Return the formats of `formats.toml`."""
    text = Path(__file__).with_name("formats.toml").read_text("utf-8")
    return tuple(_shipped(row) for row in tomllib.loads(text)["format"])


def _shipped(row: dict[str, Any]) -> Format:
    pattern = row["pattern"]
    for name, part in _PARTS.items():
        pattern = pattern.replace(name, part)
    given = {
        "hint": "",
        **row,
        "pattern": re.compile(pattern),
        "samples": tuple(row["samples"]),
    }
    return Format(**given)


# --- of one's own ---------------------------------------------------------------------------------


def use(path: Path) -> tuple[Format, ...]:
    """Read a file of formats and return its rows. From now on they are tried first, here and in
    processes started later. Raises FormatsError.
    """
    found = read(path)
    os.environ[VARIABLE] = str(path.resolve())
    own.cache_clear()
    return found


@cache
def own() -> tuple[Format, ...]:
    """Return the formats of the file in use; none where no file is in use, or it is not right any
    more."""
    path = os.environ.get(VARIABLE)
    try:
        return read(Path(path)) if path else ()
    except FormatsError:  # it was good when it was named
        return ()


def read(path: Path) -> tuple[Format, ...]:
    """Return the formats of a file. Raises FormatsError where it cannot be read or is not right."""
    try:
        rows = tomllib.loads(read_text(path, MOST_BYTES))["format"]
        if not isinstance(rows, list) or not 0 < len(rows) <= MOST_ROWS:
            raise FormatsError(f"{path}: no [[format]], or more than {MOST_ROWS}")
    except OSError as error:
        raise FormatsError(f"{path}: {error.strerror}") from None
    except KeyError:
        raise FormatsError(f"{path}: no [[format]] in it") from None
    except ValueError as error:
        raise (
            error if isinstance(error, FormatsError) else FormatsError(f"{path}: {error}")
        ) from None
    return tuple(_own(row, f"{path}: format {i}") for i, row in enumerate(rows, 1))


def _own(row: Any, where: str) -> Format:
    given = row if isinstance(row, dict) else {}
    texts = [str(given.get(name, "")) for name in ("name", "line", "sample")]
    if not all(0 < len(one) <= LONGEST for one in texts):
        raise FormatsError(f"{where}: name, line and sample are texts of up to {LONGEST} letters")
    name, line, sample = (str(text) for text in texts)
    scope, first = row.get("scope", ""), row.get("first")
    unknown = row.keys() - {"name", "line", "sample", "scope", "first"}
    if unknown:
        raise FormatsError(f"{where}: what is {', '.join(sorted(unknown))}?")
    if scope not in ("run", "epoch", "") or first not in (None, 0, 1):
        raise FormatsError(f'{where}: scope is "run" or "epoch", first 0 or 1')
    pattern, hint = _compiled(line, where)
    found = pattern.search(sample)
    if hint not in sample or found is None:
        raise FormatsError(f"{where}: its sample is not of this line")
    return Format(name=name, hint=hint, pattern=pattern, samples=(sample,), scope=scope, base=first)


def _compiled(line: str, where: str) -> tuple[re.Pattern[str], str]:
    """Return a line of the file as a pattern, and the longest word between its places.

    Lines without that word are not matched. Raises FormatsError, which begins with `where`.
    """
    parts = _PLACE.split(line)
    texts, places = parts[::2], parts[1::2]
    if set(places) - _PLACES.keys():
        raise FormatsError(f"{where}: no such place: {{{min(set(places) - _PLACES.keys())}}}")
    if len(set(places)) < len(places):
        raise FormatsError(f"{where}: each place once")
    if not _SAYS & set(places):
        raise FormatsError(f"{where}: it says neither epoch, step, fold, percent nor eta")
    hint = max((word for text in texts for word in text.split()), key=len, default="")
    if len(hint) < 2:
        raise FormatsError(f"{where}: it needs a word of its own beside the numbers")
    made = "".join(
        (_PLACES[part] if i % 2 else re.sub(r"(?:\\ )+", r" {1,20}+", re.escape(part)))
        for i, part in enumerate(parts)
    )
    return re.compile(made), hint
