"""Tells whether the holder of a lease belongs to the present run of the service."""

from __future__ import annotations

import socket

import psutil

from scheduler.service.log.store.leases import Lease


class Lives:
    """What one API process has seen of who holds the lease.

    After a kill the lease of the life before is valid for some seconds. Its holder's name has the
    host and the process that gave it; containers may share both, so one that is renewed lives.
    """

    def __init__(self) -> None:
        self._first: Lease | None = None  # as it was first seen

    def is_over(self, lease: Lease | None, ours: str) -> bool:
        """Return whether the holder of a lease no longer runs.

        Args:
            ours: the name that this service's decider goes by; "": it is not known.
        """
        if lease is None or lease.holder == ours:
            return False
        first = self._first
        if first is None or (first.holder, first.term) != (lease.holder, lease.term):
            first = self._first = lease
        if lease.beats != first.beats:
            return False
        host, _, rest = lease.holder.rpartition(":")[0].rpartition(":")
        if host != socket.gethostname() or not rest.isdecimal():
            return False
        own = ours.rpartition(":")[0].rpartition(":")[2]
        return rest == own or not psutil.pid_exists(int(rest))
