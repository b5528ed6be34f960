"""Compares each pass (scheduling round) that slurmctld made with what the policy `slurm` does in
its place.

slurmctld's log shows when a pass was made, the priorities, and which jobs it started on which
nodes. Before each pass, the policy is given the state that slurmctld had. So a pass that differs
does not make all later ones differ.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import floor

from benchmarks.slurm.recording import Recording
from scheduler.slurm.read.parse import SlurmJob, hosts
from scheduler.slurm.read.site import asks_of
from scheduler.slurm.twin.capacity import Capacity, choose
from scheduler.slurm.twin.limits import Usage
from scheduler.slurm.twin.passes import (
    Passes,
    Ranked,
    in_order,
    listed,
    ranks,
    reason_key,
)
from scheduler.slurm.twin.policy import BACKFILL_DEPTH, DEPTH, WINDOW_MIN
from scheduler.slurm.twin.priority import Multifactor
from scheduler.slurm.twin.site import Ask, Running, Share

_LINES = {
    "main": re.compile(r"sched: Running job scheduler for"),
    "backfill": re.compile(r"_attempt_backfill: beginning"),
    "began": re.compile(r"_start_job: Started JobId=(\d+(?:_\d+)?)\S* in (\S+) on (\S+)"),
    "given": re.compile(r"Allocate JobId=(\d+(?:_\d+)?)\S* NodeList=(\S+) \S+ Partition=(\S+)"),
    "done": re.compile(r"_job_complete: JobId=(\d+(?:_\d+)?)\S* done"),
    "came": re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) InitPrio=(\d+)"),
    "tested": re.compile(r"test for JobId=(\d+(?:_\d+)?)\S* Prio=(\d+) Partition=(\S+)"),
}
_MOMENT = re.compile(r"\[(\S+)\] ")
PASSES = ("main", "backfill")

Started = dict[str, tuple[str, ...]]  # nodes by job


@dataclass(frozen=True, slots=True)
class Event:
    """A line of slurmctld's log, parsed. `words` are the ids, nodes and numbers in that line."""

    at: float
    kind: str
    words: tuple[str, ...]


def events(recording: Recording) -> Iterator[Event]:
    """Yield, in order, an event for each line of slurmctld's log that shows a submission, start,
    end, pass or priority. Lines from before the recording are left out.
    """
    for line in recording.log.splitlines():
        moment = _MOMENT.match(line)
        found = ((kind, pattern.search(line)) for kind, pattern in _LINES.items())
        kind, match = next(((k, m) for k, m in found if m), ("", None))
        if moment is None or match is None:
            continue
        at = datetime.fromisoformat(moment[1]).timestamp()
        if at < recording.began - 1.0:
            continue
        words = match.groups()
        if kind == "given":
            kind, words = "began", (words[0], words[2], words[1])
        yield Event(at, kind, words)


@dataclass
class Found:
    """The result over all passes of slurmctld.

    Attributes:
        same: number of passes in which both start the same jobs on the same nodes.
        slurm: maps a job id to the time at which slurmctld started the job.
        twin: maps a job id to the time at which the policy `slurm` starts it.
    """

    passes: int = 0
    same: int = 0
    slurm: dict[str, float] = field(default_factory=dict)
    twin: dict[str, float] = field(default_factory=dict)

    def within(self, cycle_s: float) -> tuple[int, int]:
        """Return two counts: jobs that slurmctld and the policy started within `cycle_s` seconds of
        each other, and jobs that either of them started.
        """
        both = self.slurm.keys() & self.twin.keys()
        near = sum(abs(self.slurm[job] - self.twin[job]) <= cycle_s for job in both)
        return near, len(self.slurm.keys() | self.twin.keys())


class _State:
    """The state of slurmctld as its log shows it: running and waiting jobs, free resources,
    priorities.
    """

    def __init__(self, recording: Recording, asked: Mapping[str, SlurmJob]) -> None:
        self.recording, self.site = recording, recording.looks[0].site
        self.asks = asks_of(asked.values(), self.site)
        self.tasks = {one.job_id: one.tasks() for one in recording.submitted}
        self.capacity, self.usage = Capacity.of(self.site), Usage()
        self.running: dict[str, Running] = {}
        self.waiting: dict[str, int] = {}  # priority at first
        self.reasons: dict[str, str] = {}
        self.weights = Multifactor(self.site)
        self.shares: dict[str, tuple[Share, ...]] = {}
        for look in recording.looks:
            seen = [job for job in look.jobs if job.state == "RUNNING"]
            self.shares |= {j: a.shares for j, a in asks_of(seen, look.site).items() if a.shares}
        self.told: dict[tuple[str, str], list[tuple[float, int]]] = defaultdict(list)

    def take(self, event: Event) -> None:
        if event.kind == "came":
            for task in self.tasks.get(event.words[0], ()):
                self.waiting[task] = int(event.words[1])
        elif event.kind == "began":
            self._begin(event.words[0], event.words[1], hosts(event.words[2]), event.at)
        elif event.kind == "done" and (run := self.running.pop(event.words[0], None)):
            self.capacity.take(run.ask.shares, -1)
            self.usage.add(run.ask, self.site, -1)

    def _begin(self, job_id: str, part: str, nodes: tuple[str, ...], at: float) -> None:
        ask = self.asks[job_id]
        there = replace(ask, req_nodes=frozenset(nodes), max_nodes=len(nodes))
        shares = self.shares.get(job_id) or choose(there, self.capacity, nodes, self.site) or ()
        others = (name for name in ask.partitions if name != part)
        ran = replace(ask, shares=shares, partitions=(part, *others))
        self.capacity.take(shares)
        self.usage.add(ran, self.site)
        until = floor(at) + ask.limit_s(self.site.partitions[part])
        self.running[job_id] = Running(ran, floor(at), until, listed(ask, self.running))
        self.waiting.pop(job_id, None)
        self.reasons.pop(reason_key(ask), None)

    def line(self, at: float) -> list[Ranked]:
        """Return the jobs that may start at time `at`, in Slurm's order; one entry for each job and
        partition.
        """
        found = [
            one._replace(priority=self._priority(one, at))
            for job_id in self.waiting
            if self._may(self.asks[job_id], at)
            for one in ranks(self.site, self.asks[job_id], self.weights, at)
        ]
        return in_order(found)

    def _may(self, ask: Ask, at: float) -> bool:
        before = [task for job_id in ask.after for task in self.tasks.get(job_id, [job_id])]
        if any(task in self.waiting or task in self.running for task in before):
            return False
        return ask.begin is None or ask.begin <= floor(at)

    def _priority(self, ranked: Ranked, at: float) -> int:
        """Return the priority that the log shows nearest to `at`; main passes do not show one."""
        told = self.told[reason_key(ranked.ask), ranked.partition.name]
        first = (at, self.waiting[ranked.ask.job_id])
        return min(told or [first], key=lambda one: abs(one[0] - at))[1]

    def look(self, kind: str, at: float) -> Started:
        """Return the jobs that the policy starts in a pass of this kind (main or backfill) at time
        `at`.
        """
        near = min(self.recording.looks, key=lambda look: abs(look.at - at))
        capacity = self.capacity.later(self.capacity.free)
        passes = Passes(
            near.site, at, capacity, self.usage.copy(), dict(self.running), reasons=self.reasons
        )
        site, line = self.site, self.line(at)
        if kind == "main":
            passes.main(line, int(site.parameter("default_queue_depth", DEPTH)))
        else:
            depth = int(site.parameter("bf_max_job_test", BACKFILL_DEPTH))
            window_s = 60 * site.parameter("bf_window", WINDOW_MIN)
            passes.backfill(line, depth, window_s, site.parameter("bf_resolution", 60))
        return {
            job_id: tuple(sorted(share.node for share in shares))
            for job_id, (_, shares) in passes.started.items()
        }


def each_pass(recording: Recording, asked: Mapping[str, SlurmJob]) -> Found:
    """Let the policy make every pass of a recording, each from slurmctld's state before it. Return
    the comparison.

    Args:
        asked: maps a job id to the job as it was submitted.
    """
    found, state, all_events = Found(), _State(recording, asked), list(events(recording))
    arrays = {task: ask.array for task, ask in state.asks.items() if ask.array}
    for event in all_events:
        if event.kind == "tested":
            job_id, priority, part = event.words
            state.told[arrays.get(job_id, job_id), part].append((event.at, int(priority)))
    for place, event in enumerate(all_events):
        if event.kind in PASSES:
            own, slurms = state.look(event.kind, event.at), _starts(all_events, place)
            found.passes += 1
            found.same += own == slurms
            found.slurm |= dict.fromkeys(slurms, event.at)
            for job_id in own:
                found.twin.setdefault(job_id, event.at)
        state.take(event)
    return found


def _starts(all_events: list[Event], place: int) -> Started:
    """Return what slurmctld started in the pass that is at index `place` of its log's events."""
    found: Started = {}
    for event in all_events[place + 1 :]:
        if event.kind in PASSES:
            break
        if event.kind == "began":
            found[event.words[0]] = tuple(sorted(hosts(event.words[2])))
    return found
