"""Says what the last record of an attempt means: a state, an exit code, and a line for a person."""

from __future__ import annotations

import signal

from features.plain import plain
from features.states import State
from profiler.progress.apart import Ended
from scheduler.backends.base import Purpose
from scheduler.backends.local.spool import Claim, Over

LONGEST_LINE = 300
BY_OTHERS = ("request", "limit", "memory")


def failed(over: Over) -> bool:
    """Return whether the command failed by itself, so that its last output may show the reason."""
    return over["reason"] not in BY_OTHERS and over["code"] != 0 and not over["kernel_oom"]


def judge(claim: Claim, over: Over, last: Ended) -> tuple[State, str]:
    """Return the end state of an attempt, and one line about it for a person. `last`: what its last
    lines of output say.
    """
    reason, code = over["reason"], over["code"]
    if reason == "request":
        return State.CANCELLED, "stopped on request"
    if reason == "limit":
        return State.TIMEOUT, f"ran for its {claim['time_limit_s']:g} s and was stopped"
    if reason == "memory":
        limit = claim["memory_mib"]
        return State.OUT_OF_MEMORY, f"held more than its {limit:.0f} MiB of host memory"
    if code == 0:
        return State.COMPLETED, ""
    assert code is not None, "it is there once a command has ended by itself"
    if over["kernel_oom"]:
        return State.OUT_OF_MEMORY, "killed by the kernel for lack of host memory"
    what = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if last.complaint:
        return State.OUT_OF_MEMORY, f"{what}: {last.complaint}"
    return State.FAILED, f"{what}: {last.line}" if last.line else what


def exit_code(over: Over) -> int | None:
    """Return the exit code as shells give it, 128 + n when the command died of signal n; None when
    the backend stopped it."""
    code = over["code"]
    if over["reason"] != "exited" or code is None:
        return None
    return code if code >= 0 else 128 - code


def reached_profile_limit(claim: Claim, over: Over) -> bool:
    """Return whether an attempt was stopped as a profiling run at its limit, and not at the job's
    own time limit.
    """
    if claim["purpose"] != Purpose.PROFILE or over["reason"] != "limit":
        return False
    limit_s, time_limit_s = claim["limit_s"], claim["time_limit_s"]
    return time_limit_s is None or (limit_s is not None and limit_s < time_limit_s)


def line(text: str) -> str:
    """Return a text as one printable line of at most `LONGEST_LINE` characters."""
    return plain(" ".join(text.split()))[:LONGEST_LINE]
