"""Notes which services of this user run on this host, and on which database, so that commands which
work on the database find it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from features.files import write_whole
from features.given import read_text
from pipeline.errors import UserError

_NO_TOKENS = "\nno tokens"


@contextmanager
def noted(database: str, *, asks: bool = True) -> Iterator[None]:
    """Let other commands of this user find the database inside the block, and whether the service
    asks for tokens. Only a file's URL is noted, since the URL of a server can hold a password.
    """
    note = _folder() / str(os.getpid())
    if database.startswith("sqlite:///"):
        file = Path(database.removeprefix("sqlite:///").partition("?")[0]).absolute()
        with suppress(OSError):  # a home that cannot be written: it has to be named, as before
            note.parent.mkdir(parents=True, exist_ok=True)
            started = psutil.Process().create_time()
            text = f"{started} sqlite:///{file}{'' if asks else _NO_TOKENS}"
            write_whole(note, text.encode(), mode=0o600)
    try:
        yield
    finally:
        with suppress(OSError):
            note.unlink(missing_ok=True)


def database_served() -> str | None:
    """Return the database of the one service that runs, or None where none does. Raise UserError
    where several do.
    """
    alive = {url for note in _notes() if (url := _alive(note)) is not None}
    found = {url.removesuffix(_NO_TOKENS) for url in alive}
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise UserError(f"several services run here: choose one with --database: {names}")
    return next(iter(found), None)


def asks_no_token(database: str) -> bool:
    """Return whether a service that asks for no token runs on a database."""
    return database + _NO_TOKENS in map(_alive, _notes())


def _folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "pellucid/serves")


def _notes() -> list[Path]:
    try:
        return [one for one in _folder().iterdir() if one.name.isdecimal()]
    except OSError:
        return []


def _alive(note: Path) -> str | None:
    """Return the URL in a note, if the process that wrote it still lives; None otherwise."""
    try:
        started, _, url = read_text(note).partition(" ")
        if psutil.Process(int(note.name)).create_time() == float(started):
            return url
    except (OSError, ValueError, psutil.Error):
        pass
    with suppress(OSError):
        note.unlink()
    return None


def usable(folders: Sequence[Path]) -> tuple[Path | None, list[str]]:
    """Return the first bundle that a service would decide with, and why those before it are
    refused.

    None when there is no such bundle.
    """
    from models.bundle import Bundle, BundleError
    from models.bundle.acceptance import check
    from models.bundle.store import JSON_NAME

    refused = []
    for folder in folders:
        if not (folder / JSON_NAME).is_file():
            continue
        try:
            check(Bundle.load(folder))
        except BundleError as error:
            refused.append(f"{folder} is refused: {error}")
        else:
            return folder, refused
    return None, refused
