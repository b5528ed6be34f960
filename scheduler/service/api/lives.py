"""Tells whether the holder of a lease (the right to act as decider) belongs to the present run of
the service.
"""

from __future__ import annotations

import socket

import psutil

from scheduler.service.log.store.leases import Lease


class Lives:
    """What one API process has seen of the holder of a lease, to find out whether it still runs.

    After a kill, the lease of the killed process stays valid for some seconds. The holder's name
    contains its host and the process id of its service. Containers may share both, so a holder that
    still renews its lease counts as running.
    """

    def __init__(self) -> None:
        self._first: Lease | None = None  # as it was first seen

    def is_over(self, lease: Lease | None, ours: str) -> bool:
        """Return whether the holder of a lease no longer runs; False where that is not known, as on
        another host.

        Args:
            ours: the holder's name that this service's own decider uses; "": unknown.
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
