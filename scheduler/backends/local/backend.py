"""The local backend: runs jobs as processes on this host.

The service writes requests and reads records. Shims (`shim`), one process for each job, run the
commands; what they write to disk (`spool`) is the truth. An attempt begins at most once: it belongs
to the process that makes its folder first, and a later launch or stop finds the folder.

Jobs outlive the service if whatever runs the service allows it: under systemd, `KillMode=process`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from features.clock import Clock, boot_id
from features.job import Profile
from features.states import State
from profiler import procs
from profiler.guardian import Config
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.events import Event, Kind
from scheduler.backends.local import cgroup, xid
from scheduler.backends.local.attempt import PREVENTED, LocalAttempt
from scheduler.backends.local.exit_status import (
    exit_code,
    judge,
    line,
    reached_profile_limit,
)
from scheduler.backends.local.follow import asked_of
from scheduler.backends.local.health import Health, News
from scheduler.backends.local.hearing import Hearing
from scheduler.backends.local.host import KNOWN, Host, HostError, check_command
from scheduler.backends.local.leftovers import clear_up, on_gpus
from scheduler.backends.local.sampling import Usage
from scheduler.backends.local.spool import (
    CLAIM,
    OVER,
    STARTED,
    Acks,
    Claim,
    Key,
    Over,
    Spool,
    SpoolBusy,
    SpoolError,
    Started,
    name_of,
)
from scheduler.backends.local.watch import held_mib, watch
from scheduler.backends.local.zygote import Zygote, end_strays
from scheduler.core.decisions import Decision

PROFILE = "profile"  # record: what watching an attempt showed
RESEND_S = 10.0
LOCK_PATIENCE_S = 10.0
CLAIMED = ("job_id", "attempt", "purpose", "command", "nodes", "gpus", "partner")
AGAIN = (Happened.PROGRESS, Happened.UNREAD)  # whenever it is news
LIMITS = ("memory_mib", "time_limit_s", "limit_s", "watch_s")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits that hold for all jobs.

    Attributes:
        grace_s: seconds between SIGTERM and SIGKILL when a job is stopped.
        output_mib: a job's output is emptied each time it grows past this.
        kept_output_mib: the oldest outputs of ended attempts are deleted when all outputs are
            larger than this.
        check_s: seconds between two checks of whether the shims are alive.
    """

    grace_s: float = 5.0
    output_mib: float = 64.0
    kept_output_mib: float = 4096.0
    check_s: float = 2.0


class LocalBackend:
    """Runs jobs on this host.

    Args:
        folder: the spool (folder with the files of attempts), made when missing; on a local disk,
            and nobody else may write to it.
        host: this host's GPUs.
        nvml_module: stands in for `pynvml`, in tests.
        clock: dates reports, even where the host's clock was set back.
        reads_progress: whether output of jobs is read for progress, where their owners allow it.

    Raises:
        SpoolError: the spool cannot be used, or another service uses it.
    """

    name = "local"

    def __init__(
        self,
        folder: Path,
        host: Host,
        *,
        bounds: Bounds | None = None,
        nvml_module: Any = None,
        clock: Clock | None = None,
        reads_progress: bool = True,
    ) -> None:
        if not sys.platform.startswith("linux"):
            raise SpoolError("the local backend needs Linux: it reads process trees from /proc")
        self.host, self.bounds, self._nvml = host, bounds or Bounds(), nvml_module
        self._reads_progress = reads_progress
        self.spool = Spool(folder)
        self._lock = _taken(self.spool)
        self._bell = os.open(self.spool.bell, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._acked = Acks(self.spool.root / "told.log")
        self._attempts: dict[str, LocalAttempt] = {}
        self._unacked: dict[tuple[str, int, Happened], Report] = {}
        self._zygote = Zygote(self.spool.root, self._lock)
        self._host_clock = clock or Clock()
        self._host_clock.not_before(self._acked.latest)
        self._clock = self._acked.latest
        self._groups = cgroup.base()
        self._found: list[Report] | None = None  # while the spool is taken over
        self._news: News = {}  # of nodes where something would not end, or a GPU not answer
        self.health = Health(host, self.spool.root / "silent-gpus.json", nvml_module)
        self._usage = Usage(self.spool.output, nvml_module)
        host.keep(self.spool.root / KNOWN)
        self._next_check = 0.0
        self._hearing = Hearing(self.spool)
        self._grown = 0.0  # MiB that were left since outputs were pruned
        self._adopt()
        self.health.begin(self._news, self.now())

    # --- the contract -------------------------------------------------------------------------

    def now(self) -> float:
        self._clock = max(self._clock, self._host_clock.now())
        return self._clock

    def launch(self, launch: Launch) -> None:
        key = launch.job_id, launch.attempt
        name = name_of(*key)
        self._hearing.warm()
        if name in self._attempts or key in self._acked.done:
            return
        claim = cast(Claim, {part: getattr(launch, part) for part in (*CLAIMED, *LIMITS)})
        if launch.purpose is not Purpose.PROFILE:
            claim["limit_s"] = None
        claim |= asked_of(launch, self._reads_progress)
        claim["run_id"] = secrets.token_hex(8)
        claim["group"] = self._group_of(claim["run_id"])
        attempt = self._attempts[name] = LocalAttempt(name, key)
        try:
            check_command(launch)
            config = self._config(launch, name, claim)
        except HostError as error:
            self._prevent(attempt, claim, {"reason": "refused", "detail": str(error)})
            return
        claim["devices"], claim["held_mib"] = self.host.chosen(launch), {}
        if launch.purpose is Purpose.PROFILE or launch.watch_s is not None:
            claim["held_mib"] = held_mib(self.host, claim["devices"], self._nvml)
        request = {"name": name, "claim": claim, "config": config}
        attempt.request = json.dumps(request).encode() + b"\n"
        self._send(attempt)
        self._unwatch(launch.partner, name, launch.pair_watch_s)

    def stop(self, job_id: str, attempt: int) -> None:
        key = job_id, attempt
        name = name_of(*key)
        if key in self._acked.done:
            return
        known = self._attempts.setdefault(name, LocalAttempt(name, key))
        nothing: Claim = {"job_id": job_id, "attempt": attempt}
        if not known.claim and self._prevent(known, nothing, {"reason": "barred"}):
            return
        self._look(known)
        if not known.over:
            known.signal(signal.SIGTERM)

    def reports(self, timeout_s: float) -> Sequence[Report]:
        until = time.monotonic() + timeout_s
        while True:
            self._check()
            left = 0.0 if self._unacked else max(0.0, until - time.monotonic())
            pause = min(left, max(0.0, self._next_check - time.monotonic()))
            ready = procs.readable([self._bell], pause)
            for name in _rung(self._bell) if ready else ():
                if name in self._attempts:
                    self._look(self._attempts[name])
            if self._news:  # first nobody else is to be sent there, see `news`
                return []
            if self._unacked or time.monotonic() >= until:
                return list(self._unacked.values())

    def acknowledge(self, reports: Sequence[Report]) -> None:
        known = []
        for r in reports:
            report = self._unacked.pop((r.job_id, r.attempt, r.what), None)
            if report is not None and r.what not in AGAIN:
                known.append((r.job_id, r.attempt, r.what.value, r.what.final, r.at))
        if not known:
            return
        self._acked.add(known)
        for job_id, number, _, final, _ in known:
            if final:  # in this order: what is gone from the disk is in the log of acks
                attempt = self._attempts.pop(name_of(job_id, number))
                if attempt.last is not None:
                    attempt.last.drop()
                if attempt.settled:  # else its folder goes when the spool is opened next
                    self.spool.remove(attempt.name)
                with contextlib.suppress(OSError):
                    self._grown += self.spool.log(attempt.name).stat().st_size / 2**20
                if self._grown > self.bounds.kept_output_mib / 4:
                    self._prune_output()

    def begun(self) -> frozenset[Key]:
        live = {attempt.key for attempt in self._attempts.values() if attempt.begun}
        return frozenset(live | self._acked.begun())

    def news(self) -> Sequence[Event]:
        """Return events about nodes: nodes to drain, because processes of an ended attempt may
        still use their GPUs; and GPUs to close or open, by whether they answer. Each event is
        returned until it is acknowledged with `heard`.

        Reports are held back until these events are acknowledged.
        """
        return list(self._news.values())

    def heard(self, events: Sequence[Event]) -> None:
        for event in events:
            self._news.pop((event.kind, event.body["node"]), None)
            self.health.heard(event)

    def decided(self, decisions: Sequence[Decision]) -> None:
        """Do nothing: this backend shows no reasons."""

    def close(self) -> None:
        for attempt in self._attempts.values():
            attempt.end_watch()
        self._hearing.close()
        self._zygote.dismiss()
        self._acked.close()
        os.close(self._bell)
        os.close(self._lock)

    # --- beyond it ----------------------------------------------------------------------------

    def output(self, job_id: str, attempt: int) -> Path:
        """Return the path of an attempt's output, whether or not it exists."""
        return self.spool.log(name_of(job_id, attempt))

    # --- beginning ----------------------------------------------------------------------------

    def _config(self, launch: Launch, name: str, claim: Claim) -> Config:
        limits = [claim["time_limit_s"], claim["limit_s"]]
        plain = {"PYTHONUNBUFFERED": "1"} if claim["progress"] else {}
        return {
            "executable": launch.command[0],
            "argv": list(launch.command),
            "env": plain | self.host.environment(launch) | {procs.MARKER: claim["run_id"]},
            "cwd": launch.workdir,
            "user": launch.user,
            "output": str(self.spool.log(name)),
            "limit_s": min((s for s in limits if s is not None), default=float("inf")),
            "grace_s": self.bounds.grace_s,
            "memory_mib": launch.memory_mib,
            "output_mib": self.bounds.output_mib,
            "rlimits": {"RLIMIT_CORE": 0},
            "group": claim["group"],
        }

    def _group_of(self, run_id: str) -> str:
        return str(self._groups / f"{cgroup.PREFIX}{run_id}") if self._groups is not None else ""

    def _prevent(self, attempt: LocalAttempt, claim: Claim, why: Over) -> bool:
        """Claim an attempt so that it never begins, and record the reason `why`. Return False if it
        has begun already, or was prevented before.
        """
        mine: Claim = {"at": self.now(), "pid": 0, "ticks": None, "boot": ""}
        over = {"at": self.now(), **why}
        done = self.spool.claim(attempt.name, {CLAIM: {**claim, **mine}, OVER: over})
        self._look(attempt)
        return done

    def _send(self, attempt: LocalAttempt) -> None:
        """Send an attempt's request to the zygote, which forks a shim. Sending it twice is
        harmless.
        """
        attempt.sent_at, attempt.sent = time.monotonic(), attempt.sent + 1
        if not self._zygote.ask(attempt.request):
            self._zygote.ask(attempt.request)

    # --- listening ----------------------------------------------------------------------------

    def _check(self) -> None:
        """Every `check_s` seconds, check the GPUs and all attempts: find shims that are gone, send
        requests again, and report what measuring a run showed.
        """
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + self.bounds.check_s
        self.health.look(self._news, self.now())
        self.host = self.health.host
        if not self.host.fake:
            self._usage.look(self._attempts.values(), self.now())
        there = self._zygote.pid is not None
        for attempt in list(self._attempts.values()):
            if attempt.over:
                continue
            self._look(attempt)
            if attempt.claim and not attempt.over and not attempt.alive:
                self._look(attempt)  # it may have written its last word just before
                if not attempt.over and not attempt.ending_until:
                    self._lose(attempt)
            elif attempt.request and (not there or now > attempt.sent_at + RESEND_S):
                self._send(attempt)
            self._observe(attempt, now)
            if (speed := attempt.pace(now, self._attempts.get(attempt.company))) is not None:
                self._put(Report(*attempt.key, Happened.PAIR_OBSERVED, self.now(), speed=speed))
            if (news := self._hearing.news(attempt, now, self.now)) is not None:
                self._put(news)

    def _adopt(self) -> None:
        """Take over the attempts in the spool. Report what happened to them while no service ran,
        oldest first.
        """
        claims = {name: self.spool.read(name, CLAIM) for name in self.spool.names()}
        self._found = []
        for name, claim in claims.items():
            # A folder is made with its claim. It has none where the service died while it removed
            # the folder. An acknowledged one is left where it died before removing it.
            key = (claim["job_id"], claim["attempt"]) if claim is not None else None
            if key is None or key in self._acked.done:
                self.spool.remove(name)
                continue
            self._attempts[name] = LocalAttempt(name, key)
            self._look(self._attempts[name])
        found, self._found = self._found, None
        for report in sorted(found, key=lambda report: report.at):
            self._put(report)
        for attempt in self._attempts.values():
            self._unwatch(attempt.claim.get("partner"))
        self._prune_output()

    def _look(self, attempt: LocalAttempt) -> None:
        """Read what is on disk about an attempt, and report what is new."""
        if attempt.over:
            return
        if not attempt.claim:
            attempt.claim = self.spool.read(attempt.name, CLAIM) or Claim()
            if not attempt.claim:
                return
            attempt.request = b""
        # read before the start: it is written after it
        over: Over | None = self.spool.read(attempt.name, OVER)
        if not attempt.started:
            self._look_for_start(attempt)
        # taken over, what happened meanwhile is reported in order
        if over is not None and self._hearing.is_out(attempt, over, wait=self._found is not None):
            attempt.over = over["reason"]
            self._finish(attempt, over)

    def _look_for_start(self, attempt: LocalAttempt) -> None:
        started: Started | None = self.spool.read(attempt.name, STARTED)
        if started is None:
            return
        attempt.started = started
        self._report(attempt, Happened.STARTED, self._when(attempt, started), pid=started["pid"])
        self._hearing.follow(attempt)
        seen = self._acked.partly.get(attempt.key, ())
        claim = attempt.claim
        alone = claim["watch_s"] is not None and claim["partner"] is None
        if not (attempt.profiling or alone) or Happened.OBSERVED.value in seen:
            return
        if not self.host.fake and not attempt.alive:
            return
        attempt.watch = watch(
            self.host,
            command=claim["command"],
            devices=claim["devices"],
            shim=claim["pid"],
            origin=started["monotonic"],
            baseline=claim["held_mib"],
            nvml_module=self._nvml,
        )

    def _unwatch(
        self, partner: str | None, company: str = "", pair_watch_s: float | None = None
    ) -> None:
        """Stop measuring the profile of a job (`partner`) that now shares its GPUs with another
        (`company`): what two jobs do on one GPU cannot be separated, except for the speed of each.
        `pair_watch_s`: seconds for which that speed is measured; None: it is not.
        """
        for attempt in self._attempts.values() if partner is not None else ():
            if attempt.key[0] == partner and not attempt.profiling:
                attempt.end_watch()
                follower, attempt.follower = attempt.follower, None
                if follower is not None and pair_watch_s is not None:
                    ran_s = time.monotonic() - attempt.started["monotonic"]
                    attempt.beside = follower.beside(ran_s, pair_watch_s)
                    attempt.company = company

    def _observe(self, attempt: LocalAttempt, now: float) -> None:
        """Report the profile of a run that has been measured for long enough."""
        if attempt.watch is None or attempt.profiling:
            return
        long_enough = attempt.claim["watch_s"]
        if long_enough is None or now < attempt.started["monotonic"] + long_enough:
            return
        profile, _ = attempt.end_watch(long_enough)
        if profile is not None:
            self._report(attempt, Happened.OBSERVED, self.now(), profile=profile)

    # --- ends ---------------------------------------------------------------------------------

    def _finish(self, attempt: LocalAttempt, over: Over) -> None:
        """Report the end of an attempt from its record on disk, and drain its nodes where processes
        have survived.
        """
        reason, at = over["reason"], self._when(attempt, over)
        self._drain(attempt, over.get("survivors", ()))
        if reason in PREVENTED:
            barred = reason == "barred"
            detail = "stopped before it began" if barred else over["detail"]
            state = State.CANCELLED if barred else None
            self._report(attempt, Happened.NOT_STARTED, at, state=state, detail=line(detail))
            return
        if reason == "lost":
            self._report(attempt, Happened.LOST, at, detail=over["detail"])
            return
        ran_s, last = over["ran_s"], self._hearing.last_words(attempt)
        profile, note = self._profile_of(attempt, ran_s, ended=reason == "exited")
        if reached_profile_limit(attempt.claim, over):
            more = {"ran_s": ran_s, "profile": profile, "detail": line(note)}
            if last.progress is not None:
                self._put(Report(*attempt.key, Happened.PROGRESS, at, progress=last.progress))
            self._report(attempt, Happened.PROFILED, at, **more)
            return
        state, detail = judge(attempt.claim, over, last)
        if state is State.FAILED and not self.host.fake:
            errors = xid.words_of(xid.since(attempt.started["monotonic"]))
            detail = "; ".join(filter(None, (errors, detail)))
        self._report(
            attempt,
            Happened.ENDED,
            at,
            state=state,
            exit_code=exit_code(over),
            ran_s=ran_s,
            detail=line(detail or note),
            profile=profile,
        )

    def _profile_of(
        self, attempt: LocalAttempt, ran_s: float, *, ended: bool
    ) -> tuple[Profile | None, str]:
        """Return the profile of an ended attempt (None: not measured) and a note on it. Both stay
        on disk until the end is acknowledged.
        """
        if not attempt.profiling:
            attempt.end_watch()
            return None, ""
        kept = self.spool.read(attempt.name, PROFILE)
        if kept is not None:
            return (None if kept["profile"] is None else Profile(**kept["profile"])), kept["note"]
        profile, note = attempt.end_watch(ran_s, ended=ended)
        values = {"profile": None if profile is None else asdict(profile), "note": note}
        with contextlib.suppress(OSError):  # then only a crash loses it
            self.spool.record(attempt.name, PROFILE, values, durable=False)
        return profile, note

    def _lose(self, attempt: LocalAttempt) -> None:
        """Record an attempt as lost whose shim has died without recording an end, and kill the
        processes that it may have left.
        """
        claim = attempt.claim
        left = clear_up(claim, self.spool.log(attempt.name), self._zygote.pid)
        if not self.host.fake:
            others = [a.claim["pid"] for a in self._attempts.values() if a.claim and not a.over]
            found = on_gpus(claim["devices"], claim, others, self._nvml)
            left = sorted({*left, *found})
        attempt.end_watch()
        detail = "the process that stood by it died, or this host was restarted"
        if left:
            detail += f"; still there: {_some(left)}"
        elif os.geteuid() != 0 and not claim.get("group"):
            detail += "; what it hid from this service may still be there"
        values: Over = {"at": self.now(), "reason": "lost", "detail": detail, "survivors": left}
        self.spool.record(attempt.name, OVER, values, durable=True)
        self._look(attempt)

    def _drain(self, attempt: LocalAttempt, survivors: Sequence[int]) -> None:
        """Add events that drain the nodes of an attempt, if some of its processes (`survivors`)
        would not end.
        """
        job_id, _ = attempt.key
        for node in attempt.claim["nodes"] if survivors else ():
            why = f"processes of job {job_id} would not end: {_some(survivors)}"
            body = {"node": node, "open": False, "reason": why}
            self._news[Kind.NODE_SET, node] = Event(Kind.NODE_SET, self.now(), body=body)

    def _report(self, attempt: LocalAttempt, what: Happened, at: float, **more: Any) -> None:
        """Add a report of what happened to an attempt, unless it was acknowledged before. `more`:
        further fields of the report.
        """
        if what.value in self._acked.partly.get(attempt.key, ()):
            return
        report = Report(*attempt.key, what, at, **more)
        if self._found is None:
            self._put(report)
        else:
            self._found.append(report)

    def _put(self, report: Report) -> None:
        """Add a report to those that wait for acknowledgement; its time is moved so that times
        never go back.
        """
        self._clock = at = max(self._clock, report.at)
        self._host_clock.not_before(at)
        key = report.job_id, report.attempt, report.what
        self._unacked[key] = replace(report, at=at)

    def _when(self, attempt: LocalAttempt, record: Started | Over) -> float:
        """Return the time of a record on this service's clock, seconds since the epoch. It is
        computed from the record's age by the monotonic clock, because the time of day may have been
        set since. After a restart of the host, the recorded time is used.
        """
        then = record.get("monotonic")
        if then is None or attempt.claim["boot"] != boot_id():
            return float(record["at"])
        ago_s: float = max(0.0, self._host_clock.monotonic() - then)
        return self._host_clock.now() - ago_s

    def _prune_output(self) -> None:
        self._grown = 0.0
        self.spool.prune_output(self.bounds.kept_output_mib, self._attempts)


def _some(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids[:5])) + (", ..." if len(pids) > 5 else "")


def _taken(spool: Spool) -> int:
    """Lock the spool, and return the descriptor of the lock. The caller must hold the decider's
    lease, so that the last service is gone. Where processes left by that service hold the lock,
    kill them and try again. Raise SpoolBusy where the lock stays held.
    """
    try:
        return spool.lock(LOCK_PATIENCE_S)
    except SpoolBusy:
        if not end_strays(spool.root):
            raise
        return spool.lock(LOCK_PATIENCE_S)


def _rung(bell: int) -> set[str]:
    """Read the bell (a pipe to which shims write) until it is empty. Return the names of the
    attempts' folders that they wrote.
    """
    text = b""
    while True:
        try:
            part = os.read(bell, 65536)
        except BlockingIOError:
            return set(text.decode("utf-8", "replace").split("\n"))
        text += part
