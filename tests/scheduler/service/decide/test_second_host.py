"""What a host says of itself: its boots, its accounts."""

from __future__ import annotations

import json
import os
import pwd
from types import SimpleNamespace
from typing import Any, cast

import pytest

from features.clock import Clock, boot_id
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.shim import Account


@pytest.mark.parametrize(("boot", "at"), [("another", 77.0), (boot_id(), 940.0)])
def test_monotonic_times_count_in_their_own_boot_only(boot: str, at: float) -> None:
    backend: Any = SimpleNamespace(_host_clock=Clock(lambda: 1000.0, lambda: 100.0))
    attempt: Any = SimpleNamespace(claim={"boot": boot})
    assert LocalBackend._when(backend, attempt, {"at": 77.0, "monotonic": 40.0}) == at


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_job_keeps_none_of_the_groups_of_the_service() -> None:
    entry = pwd.getpwnam("nobody")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([0, 4, 42])
            cast("Account", Account.named("nobody")).become()
            os.write(write, json.dumps([os.getuid(), os.getgid(), os.getgroups()]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        uid, gid, groups = json.loads(answer.read())
    os.waitpid(child, 0)
    assert (uid, gid) == (entry.pw_uid, entry.pw_gid)
    assert sorted(groups) == sorted(os.getgrouplist("nobody", entry.pw_gid))
