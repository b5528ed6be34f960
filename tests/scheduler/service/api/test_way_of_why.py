"""The way of a question: which rooms of the code the id of a job enters for one recorded `why`, and
how often it comes back into a room that it had left."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import Result

from tests.scheduler.service.api.conftest import Service

ROOT = Path(__file__).parents[4]
ROOMS = {
    "pipeline/commands", "scheduler/service/client.py", "scheduler/service/api",
    "scheduler/service/log", "scheduler/explain",
}  # fmt: skip
RETURNS = 4  # may only fall


class Way:
    """Notes each function, once and in order, that gets the id of one job as an argument which its
    name says is a job's."""

    def __init__(self) -> None:
        self.job_id = ""
        self.functions: dict[tuple[str, str], str] = {}  # by file and name: the room

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or not self.job_id or not code.co_filename.startswith(str(ROOT)):
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = [frame.f_locals.get(name) for name in arguments if "job" in name]
        if any(type(value) is str and value == self.job_id for value in given):
            file = Path(code.co_filename).relative_to(ROOT)
            if file.parts[0] not in ("tests", ".venv"):
                self.functions.setdefault((str(file), code.co_qualname), _room(file))

    @property
    def stays(self) -> list[str]:
        """The rooms in order, one for each stay."""
        return [room for room, _ in groupby(self.functions.values())]


def _room(file: Path) -> str:
    return "/".join(file.parts[:3] if file.is_relative_to("scheduler/service") else file.parts[:2])


@pytest.fixture
def way() -> Iterator[Way]:
    """Listens to all threads that begin after it."""
    made = Way()
    threading.setprofile(made)
    yield made
    sys.setprofile(None)
    threading.setprofile(None)


def test_an_id_enters_few_rooms_and_comes_back_to_few(
    way: Way, service: Service, run: Callable[..., Result]
) -> None:
    """From the command to the API, to what the log keeps of the job, to what is said of it, and
    back. What an analyst adds is worked out on a copy of the core, which has rooms of its own."""
    job = service.waiting()
    run("alice", "why", job)  # what is loaded at the first one
    way.job_id = job
    sys.setprofile(way)
    done = run("alice", "why", job)
    sys.setprofile(None)
    assert done.exit_code == 0, done.output
    assert set(way.stays) == ROOMS
    assert len(way.stays) - len(ROOMS) <= RETURNS, way.stays
