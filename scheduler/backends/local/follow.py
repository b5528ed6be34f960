"""Says which output of a launch is read for progress, and where. It is stored, so that a restarted
service can go on.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

from profiler.progress.apart import Asked, Followed, Reading
from profiler.progress.names import VARIABLE
from scheduler.backends.base import Launch
from scheduler.backends.local.spool import Claim


def asked_of(launch: Launch, allowed: bool) -> Claim:
    """Return what `followed_of` needs to know of a launch, as plain JSON for the attempt's record.
    `allowed`: whether the service reads progress at all.
    """
    own = launch.environment.get(VARIABLE, "")
    reads = allowed and launch.progress and launch.partner is None
    amount = dict(launch.amount)
    return {
        "progress": reads,
        "amount": amount,
        "own": own and str(Path(launch.workdir, own)),
        "user": launch.user,
    }


def followed_of(claim: Claim, output: Path, reading: Reading) -> Followed | None:
    """Return a reader of an attempt's progress from its output. Return None if the output may not
    be read.
    """
    if not claim.get("progress"):
        return None
    own, uid = claim["own"], os.geteuid()
    if claim["user"]:
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(claim["user"]).pw_uid
    return reading.follow(
        Asked(
            output=output,
            own=Path(own) if own else None,
            uid=uid,
            command=claim["command"],
            amount=claim.get("amount", {}),
        )
    )
