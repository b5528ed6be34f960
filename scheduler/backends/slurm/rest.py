"""Writes by slurmrestd, as far as its API of 22.05 (v0.0.38) can say them.

It submits held jobs, releases and cancels them, at a process less each. It can name neither nodes
nor AdminComment, so that a job is placed by `scontrol` all the same. Tasks of arrays go by Slurm's
commands, which know their ids, and a job for another user by `sbatch`: a token speaks for one.
What slurmrestd refuses, or does not answer, goes no other way instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

from scheduler.backends.slurm.client import PATIENCE_S, Slurm, SlurmDown, SlurmError, unreachable

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
    """

    def __init__(
        self, url: str, user: str, token: Callable[[], str], *args: Any, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self._user, self._token = user, token
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE_S)

    def submit(self, options: Sequence[str], script: str) -> str:
        if self.dry or any(option.startswith("--uid=") for option in options):
            return super().submit(options, script)
        body = {"job": job(options), "script": script}
        return str(self._ask("POST", "/job/submit", body)["job_id"])

    def cancel(self, job_id: str) -> None:
        if self.dry or not job_id.isdigit():
            super().cancel(job_id)
        else:
            self._ask("DELETE", f"/job/{job_id}")

    def write(self, lines: Sequence[str]) -> list[str]:
        if self.dry:
            return super().write(lines)
        return [self._line(line) for line in lines]

    def _line(self, line: str) -> str:
        if _RELEASE.fullmatch(line):
            return self._release(line.split()[1])
        return super().write([line])[0]

    def _release(self, job_id: str) -> str:
        try:
            self._ask("POST", f"/job/{job_id}", {"hold": False})
        except SlurmError as error:
            return str(error)
        return ""

    def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Raises SlurmDown, SlurmError."""
        self._wait_for_turn()
        said = {"X-SLURM-USER-NAME": self._user, "X-SLURM-USER-TOKEN": self._token()}
        try:
            answer = self._http.request(method, f"{API}{path}", json=body, headers=said)
            told = answer.json()
        except httpx2.HTTPError as error:
            self._failed(f"slurmrestd: {error}")
            raise SlurmDown(f"slurmrestd: {error}") from None
        except ValueError:  # no JSON: it refuses the token, or is another server
            words = f"slurmrestd: {answer.status_code} {' '.join(answer.text.split())[:80]}"
            self._failed(words)
            raise SlurmDown(words) from None
        errors = [e for e in told.get("errors") or () if _number(e) != HELD or "job_id" not in told]
        if answer.status_code == 200 and not errors:
            self._failures = 0
            return dict(told)
        words = "; ".join(str(e.get("error") or e.get("description") or e) for e in errors)
        words = words or f"status {answer.status_code}"
        if unreachable(words) or answer.status_code == 401:  # a token that ran out ends no job
            self._failed(words)
            raise SlurmDown(words)
        raise SlurmError(words)

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


def _number(error: dict[str, Any]) -> Any:
    return error.get("error_number", error.get("error_code"))


def token_of(file: Path) -> str:
    """The token in a file: all of it, or what follows ``SLURM_JWT=`` as `scontrol token` prints it.

    Raises SlurmDown: it cannot be read now.
    """
    try:
        return file.read_text().strip().removeprefix("SLURM_JWT=")
    except (OSError, ValueError) as error:
        raise SlurmDown(f"the token of slurmrestd: {error}") from None
