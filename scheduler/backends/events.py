"""The events of the log, from which the service's state is made.

Every event is appended to the log in a transaction before it takes effect. Kinds in `INPUTS` change
what the decision core knows; the others are kept for people (refusals, forecasts, heartbeats).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """The kinds of events. The fields of the body are listed beside each kind."""

    HEADER = "genesis"  # cluster, policy, parameters, bundle, version: what the core is built from
    SUBMITTED = "submitted"  # spec (see `backends.submission.Submission`), owner
    CANCEL_ASKED = "cancel_asked"
    PRIORITY_SET = "priority_set"  # priority (higher goes first)
    # a waiting job is not to start until it is released: operator (only one may release it then)
    HELD = "held"
    RELEASED = "released"  # operator: whether one asks
    CHANGED = "changed"  # what a waiting job asks for instead: gpus, time_limit_s, share, vc, ...
    NODE_SET = "node_set"  # node, open (False: drained, nothing new starts there), reason
    # node, closed: which of its GPUs do not answer from here on, and why, by index; none: all do
    GPUS_CLOSED = "gpus_closed"
    NODE_ADDED = "node_added"  # name, vc, gpus, gpu_type, gpu_memory_mib; numbered by the fold
    # node, and what it is to be once nothing runs there: vc, gpus, gpu_type, gpu_memory_mib; reason
    NODE_CHANGED = "node_changed"
    NODE_REMOVED = "node_removed"  # node, reason: it goes once nothing runs there
    SETTINGS_SET = "settings_set"  # settings (all of the policy's), reason
    DECIDED = "decided"  # upto, now, count, digest, keys: a pass over all events up to `upto`
    EPOCH = "rebased"  # why; of older releases, in which a new core decided from here on
    STARTED = "started"  # attempt, pid
    OBSERVED = "observed"  # attempt, profile
    PAIR_OBSERVED = "pair_observed"  # attempt, speed: beside its partner, over that of a run alone
    PROGRESS = "progress"  # attempt, progress: how long it will have run, by what it printed
    UNREAD = "unread"  # attempt, detail: why its progress is not known; none: it is read again
    PROFILED = "profiled"  # attempt, profile
    ENDED = "ended"  # attempt, state, exit_code, ran_s, detail
    LOST = "lost"  # attempt, detail
    NOT_STARTED = "not_started"  # attempt, detail
    BUNDLE = "bundle"  # digest, path: scores come from it from the next pass on
    BUNDLE_REFUSED = "bundle_refused"  # path, why
    # from, to, why, jobs: models that were worse than the former ones, which decide again
    BUNDLE_RETURNED = "bundle_returned"
    LEASE = "lease"  # holder, term: who decides from here on
    CLOCK_WENT_BACK = "clock_went_back"  # by_s: the host's time of day, behind the log's
    # first, by_s, reason: events from `first` to before this one are dated so much too late
    CLOCK_MENDED = "clock_mended"
    REFUSED = "refused"  # what, why: a request that was turned down
    FORECAST = "forecast"  # early, late figures stored at submission
    # bundle, inputs: what its duration was predicted from, where Slurm decides
    SCORED = "scored"
    ADVISED = "advised"  # running, waiting, left_out, ...: a poll of a queue we only follow
    # of a job in Slurm, which is about to be changed: was, priority, dry; or comment, dry
    ORDERED = "ordered"


INPUTS = frozenset(Kind) - {
    Kind.LEASE,
    Kind.CLOCK_WENT_BACK,
    Kind.CLOCK_MENDED,
    Kind.REFUSED,
    Kind.FORECAST,
    Kind.BUNDLE_REFUSED,
    Kind.BUNDLE_RETURNED,
    Kind.SCORED,
    Kind.ADVISED,
    Kind.ORDERED,
}


ABOUT_NODES = frozenset({
    Kind.NODE_SET, Kind.GPUS_CLOSED, Kind.NODE_ADDED, Kind.NODE_CHANGED, Kind.NODE_REMOVED,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the log.

    Attributes:
        seq: place in the log, from 1; 0 before it is appended.
        at: seconds since the epoch, on the clock of the process that appended it.
        job_id: id of the job it is about; "": it is about no job.
        actor: name of the token (or local user) that asked; "" for the service itself.
        cause: seq of the event that led to it, 0 if none.
    """

    kind: Kind
    at: float
    job_id: str = ""
    actor: str = ""
    cause: int = 0
    body: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0


def canonical(value: object) -> str:
    """Return a value as JSON in a fixed form, the same for equal values, for digests."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
