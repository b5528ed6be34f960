"""Notes which services of this user run on this host, and on which database. Commands that need the
database find it by these notes."""

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
    """Write a note for the duration of the block, by which other commands of this user find the
    database, and know whether the service asks for tokens. For a database server nothing is
    noted, since its URL can hold a password.

    Args:
        database: URL of the database.
        asks: whether the service asks for tokens.
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
    """Return the URL of the database of this user's service that runs on this host, or None if
    no such service is noted. Raise UserError if there are several such databases."""
    alive = {url for note in _notes() if (url := _alive(note)) is not None}
    found = {url.removesuffix(_NO_TOKENS) for url in alive}
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise UserError(f"several services run here: choose one with --database: {names}")
    return next(iter(found), None)


def asks_no_token(database: str) -> bool:
    """Return whether a service that asks for no token runs on the database with this URL."""
    return database + _NO_TOKENS in map(_alive, _notes())


def _folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "pellucid/serves")


def _notes() -> list[Path]:
    try:
        return [one for one in _folder().iterdir() if one.name.isdecimal()]
    except OSError:
        return []


def _alive(note: Path) -> str | None:
    """Return the text in a note (the URL of a database) if the process that wrote it still runs.
    Otherwise remove the note and return None."""
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
    """Return (first folder with a bundle of models that a service accepts, why each bundle before
    it is refused).

    Folders without a bundle are skipped. The folder is None if no bundle is accepted."""
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
