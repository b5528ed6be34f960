"""Whose output is read, and where: of a launch, and again after a restart."""

from __future__ import annotations

import contextlib
import os
import pwd
from pathlib import Path

from features.amounts import of_command
from profiler.progress.news import Follower
from profiler.progress.tail import VARIABLE, Tail
from scheduler.backends.base import Launch
from scheduler.backends.local.spool import Claim


def asked_of(launch: Launch, allowed: bool) -> Claim:
    """What is kept of a launch for `follower_of`."""
    own = launch.environment.get(VARIABLE, "")
    reads = allowed and launch.progress and launch.partner is None
    amount = dict(launch.amount)
    return {
        "progress": reads,
        "amount": amount,
        "own": own and str(Path(launch.workdir, own)),
        "user": launch.user,
    }


def follower_of(claim: Claim, output: Path) -> Follower | None:
    """A follower of an attempt as it was claimed; None where its output is not to be read, or two
    share its GPUs, so that its pace is not its own."""
    if not claim.get("progress"):
        return None
    own, uid = claim["own"], os.geteuid()
    if claim["user"]:
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(claim["user"]).pw_uid
    asked = of_command(claim["command"])
    if not (asked.epochs or asked.steps):  # by a file that it names, read when it was submitted
        asked = asked._replace(**claim.get("amount", {}))
    return Follower(Tail(output, asked, Path(own) if own else None, uid))
