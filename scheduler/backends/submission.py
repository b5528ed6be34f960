"""What a person asks for when they submit a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from features.job import Job


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it is kept in the log.

    Attributes:
        command: argument vector, at least one word.
        owner: who submitted it (name of the token, or the local user).
        user: operating-system user it runs as; "" = the service's own.
        memory_mib, time_limit_s: limits that are enforced; None = none.
        share, profile: opt-outs: False = never packed, never profiled beforehand.
        priority: higher goes first; 0 for everybody, other values are an operator's.
        sealed: `command` is only the program, and `environment` empty: they are kept apart.
    """

    job_id: str
    command: tuple[str, ...]
    owner: str
    vc: str
    gpus: int
    submitted_at: float
    name: str = ""
    user: str = ""
    workdir: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_mib: float | None = None
    gpu_type: str | None = None
    time_limit_s: float | None = None
    share: bool = True
    profile: bool = True
    priority: int = 0
    sealed: bool = False

    def sealing(self) -> Submission:
        """Without what it runs and its environment, which are kept apart; the program's name
        stays."""
        return replace(self, command=self.command[:1], environment={}, sealed=True)

    def job(self) -> Job:
        """The job as the decision core knows it."""
        return Job(
            job_id=self.job_id,
            submit_time=self.submitted_at,
            gpus=self.gpus,
            user=self.owner,
            vc=self.vc,
            name=self.name,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            gpu_type=self.gpu_type,
            time_limit_s=self.time_limit_s,
            share=self.share,
            profile=self.profile,
        )

    def changed(self, to: Mapping[str, Any]) -> Submission:
        """What is asked for instead; `to` is the body of a CHANGED event."""
        return replace(self, **to)

    def body(self) -> dict[str, Any]:
        """As the body of a SUBMITTED event."""
        found = {name: _plain(getattr(self, name)) for name in self.__slots__}
        if not self.sealed:
            del found["sealed"]  # earlier versions kept all of it in the log
        return found

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Submission:
        """The inverse of `body`. What only earlier versions kept is left out."""
        known = {name: body[name] for name in cls.__slots__ if name in body}
        return cls(**{**known, "command": tuple(body["command"])})


def is_change(body: Mapping[str, Any]) -> bool:
    """Whether a CHANGED event says what a job may ask for instead, and nothing else."""
    return bool(body) and all(
        name in _CHANGEABLE and _CHANGEABLE[name](body[name]) for name in body
    )


def _seconds(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and 0 < value < inf)


_CHANGEABLE: Mapping[str, Callable[[Any], bool]] = {
    "gpus": lambda value: type(value) is int and value > 0,
    "time_limit_s": _seconds,
    "share": lambda value: isinstance(value, bool),
    "profile": lambda value: isinstance(value, bool),
    "vc": lambda value: isinstance(value, str),
    "gpu_type": lambda value: value is None or isinstance(value, str),
}


CHANGEABLE = tuple(_CHANGEABLE)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
