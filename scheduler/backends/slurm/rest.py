"""Writes by slurmrestd, as far as its API of 22.05 (v0.0.38) can say them.

It submits held jobs, releases and cancels them, at a process less each. It can name neither nodes
nor AdminComment, so that a job is placed by `scontrol` all the same. Tasks of arrays go by Slurm's
commands, which know their ids, and a job for another user by `sbatch`: a token speaks for one.
What slurmrestd refuses, or does not answer, goes no other way instead. While it is not asked
again for a while, the controller is: each has a pause of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

from scheduler.backends.slurm.client import (
    PATIENCE_S,
    RestDown,
    Slurm,
    SlurmDown,
    SlurmError,
    Turns,
    unreachable,
)

API = "/slurm/v0.0.38"
HELD = 2042  # said of a job that was submitted, and is held: no error
_RELEASE = re.compile(r"release \d+")
# options of `sbatch` as `script.options` gives them, as fields of a job
_FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "hold": lambda _: {"hold": True},
    "no-requeue": lambda _: {"requeue": False},
    "export": lambda _: {"environment": {"PATH": "/usr/bin:/bin"}},  # one is asked for
    "job-name": lambda text: {"name": text},
    "comment": lambda text: {"comment": text},
    "partition": lambda text: {"partition": text},
    "nodes": lambda text: {"nodes": [int(text), int(text)]},
    "ntasks": lambda text: {"tasks": int(text)},
    "chdir": lambda text: {"current_working_directory": text},
    "output": lambda text: {"standard_output": text},
    "mem": lambda text: {"memory_per_node": int(text.removesuffix("M"))},
}


class RestSlurm(Slurm):
    """Slurm, part of whose writes go by slurmrestd.

    Args:
        url: of slurmrestd, e.g. ``http://127.0.0.1:6820``.
        user: whose token it is.
        token: read anew for every request, since tokens run out.

    Raises ValueError: the url is none.
    """

    def __init__(
        self, url: str, user: str, token: Callable[[], str], *args: Any, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._user, self._token = user, token
        self._rest = Turns(self._clock)
        try:
            self._http = httpx2.Client(base_url=url, timeout=PATIENCE_S)
        except httpx2.InvalidURL as error:
            raise ValueError(str(error)) from None

    def submit(self, options: Sequence[str], script: str) -> str:
        if self.dry or any(option.startswith("--uid=") for option in options):
            return super().submit(options, script)
        body = {"job": job(options), "script": script}
        job_id = str(self._ask("POST", "/job/submit", body).get("job_id"))
        if not job_id.isdecimal():
            raise self._down(f"it gave no job id: {job_id[:40]}")
        return job_id

    def cancel(self, job_id: str) -> None:
        if self.dry or not job_id.isdigit():
            super().cancel(job_id)
        else:
            self._ask("DELETE", f"/job/{job_id}")

    def write(self, lines: Sequence[str]) -> list[str]:
        if self.dry:
            return super().write(lines)
        others = [line for line in lines if not _RELEASE.fullmatch(line)]  # they do not wait for it
        said = dict(zip(others, super().write(others), strict=True)) if others else {}
        return [said[x] if x in said else self._release(x.split()[1]) for x in lines]

    def _release(self, job_id: str) -> str:
        try:
            self._ask("POST", f"/job/{job_id}", {"hold": False})
        except SlurmError as error:
            return str(error)
        return ""

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Raises SlurmDown, SlurmError."""
        left_s = self._rest.left_s()
        if left_s:
            raise RestDown("slurmrestd: it did not answer lately", left_s)
        answer = self._request(method, path, body)
        try:
            told = answer.json()
        except ValueError:  # it refuses the token, perhaps
            told = None
        if not isinstance(told, dict) or "errors" not in told:  # or is another server
            raise self._down(f"{answer.status_code} {' '.join(answer.text.split())[:80]}")
        errors = [e for e in _listed(told["errors"]) if _number(e) != HELD or "job_id" not in told]
        if answer.status_code == 200 and not errors:
            self._rest.answered()
            return dict(told)
        words = "; ".join(map(_words, errors)) or f"status {answer.status_code}"
        if answer.status_code == 401 or "authentication" in words.lower():
            raise self._down(words)  # a token that ran out ends no job
        if unreachable(words):  # slurmrestd answers, but the controller is down
            self._rest.failed(words)
            raise SlurmDown(words)
        raise SlurmError(words)

    def _request(self, method: str, path: str, body: object) -> httpx2.Response:
        self.beat()
        try:
            token = word_of(self._token())
        except ValueError as error:
            raise self._down(str(error)) from None
        said = {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": token}
        try:
            return self._http.request(method, f"{API}{path}", json=body, headers=said)
        except httpx2.HTTPError as error:
            raise self._down(str(error)) from None
        except ValueError as error:  # no text that JSON can have
            raise SlurmError(f"slurmrestd: cannot be said to it ({error})") from None

    def _down(self, why: str) -> RestDown:
        words = f"slurmrestd: {why}"
        self._rest.failed(words)
        return RestDown(words, self._rest.left_s())

    def close(self) -> None:
        self._http.close()
        super().close()


def job(options: Sequence[str]) -> dict[str, Any]:
    """Options of `sbatch` as a job of the API. SlurmError: it has no such field."""
    found: dict[str, Any] = {}
    for option in options:
        name, _, value = option.removeprefix("--").partition("=")
        if name not in _FIELDS:
            raise SlurmError(f"slurmrestd: --{name} cannot be said to it")
        found |= _FIELDS[name](value)
    return found


def _listed(errors: Any) -> list[Any]:
    return errors if isinstance(errors, list) else [errors] if errors else []


def _number(error: Any) -> Any:
    return error.get("error_number", error.get("error_code")) if isinstance(error, dict) else None


def _words(error: Any) -> str:
    told = error if isinstance(error, dict) else {}
    return str(told.get("error") or told.get("description") or error)


def word_of(text: str) -> str:
    """The token in a text: its first word, or what follows ``SLURM_JWT=`` as `scontrol token`
    prints it.

    Raises ValueError: there is none that a header can hold. It does not repeat what there is.
    """
    token = next(iter(text.split()), "").removeprefix("SLURM_JWT=")
    if not (token and token.isascii() and token.isprintable()):
        raise ValueError("its token is no word of printable ASCII")
    return token


def token_of(file: Path) -> str:
    """The text of a file that has the token. Raises ValueError: it cannot be read now."""
    try:
        return file.read_text()
    except (OSError, ValueError) as error:
        raise ValueError(f"its token: {error}") from None
