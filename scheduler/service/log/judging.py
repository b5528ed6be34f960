"""Judges and promotes the models that operators propose, one proposal at a time, by running
`pellucid promote`.

The program judges these models as it judges any candidate. It is a separate process of low
priority, so that the processes that decide load no training library. A run that is broken off
because the service stops is repeated later.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog

from features.files import write_table, write_whole
from features.given import read_text
from features.plain import first_line
from models.bundle import Bundle
from scheduler.service.log import served
from scheduler.service.log.export import finished
from scheduler.service.log.header import service_clock
from scheduler.service.log.proposals import (
    BUNDLE,
    DONE,
    JUDGED,
    Done,
    Judged,
    Proposal,
    Proposals,
    write,
)
from scheduler.service.log.served import weeks
from scheduler.service.log.store.store import Store

POLL_S = 2.0
LONGEST_S = 4 * 3600.0  # of one judgement
LEAST_JOBS, LEAST_USERS = 200, 8  # of ours that are judged on; fewer: those of the pipeline
JOBS = "jobs.parquet"
TRACE = Path("data/trace")  # of the pipeline, beside its parameters
LOG = "judging"
TRACK_EVERY = 150  # turns: five minutes
AGAIN_S = 3600.0  # after a week could not be logged
LOGGED, TRIED = ".logged", "tried.txt"  # marks, beside the weeks
Stopping = Callable[[float], bool]
Ran = tuple[int, str, str]  # exit status, standard output, the last line of standard error


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Files and program with which proposals are judged.

    Attributes:
        params: file of the pipeline's parameters, which names the model registry and the cluster.
        out: folder from which services read the champion's bundle (the models in use).
        program: the command `pellucid`.
    """

    params: Path
    out: Path
    program: Sequence[str] = (str(Path(sys.executable).with_name("pellucid")),)


def keep_judging(database: str, state_dir: Path, desk: Desk, stopping: Stopping) -> None:
    """Until stopped, judge and promote proposals as operators ask, and have the models' weekly
    figures logged in MLflow. While the parameters file is missing, nothing is done.
    """
    store = Store(database)
    clock = service_clock(store)
    turns = 0
    try:
        while not stopping(POLL_S):
            if not os.path.isfile(desk.params):  # or they cannot be read
                continue
            step(store, Proposals(state_dir), desk, clock=clock, stopping=stopping)
            turns += 1
            if turns % TRACK_EVERY == 1:
                track(state_dir, desk, clock(), stopping)
    finally:
        store.close()


def step(
    store: Store, proposals: Proposals, desk: Desk, clock: Callable[[], float], stopping: Stopping
) -> bool:
    """Judge or promote one proposal, if there is one to be judged or promoted. Return whether that
    was done, with success or not; False also where the service's stop interrupted that, or the disk
    is full.
    """
    log = structlog.get_logger(LOG)
    for one in reversed(proposals.each()):
        again = one.again_at is not None and clock() >= one.again_at
        if one.state == "judging" or again:
            try:
                found = _judged(store, one, desk, clock=clock, stopping=stopping)
            except (OSError, ValueError, pa.ArrowException) as error:
                found = Judged(at=clock(), error=first_line(error))
            if found is not None and again:
                found = _next_look(one, found)
            if found is None or not _written(one.folder / JUDGED, found):
                return False
            log.info("judged", proposal=one.name, better=found.better, why=found.error)
            return True
        if one.state == "promoting":
            try:
                done = _promoted(one, desk, clock, stopping)
            except (OSError, ValueError) as error:
                done = Done(at=clock(), error=first_line(error))
            if done is None or not _written(one.folder / DONE, done):
                return False
            log.info("promoted", proposal=one.name, by=one.proposed.by, why=done.error)
            return True
    return False


def _next_look(one: Proposal, found: Judged) -> Judged:
    """Return the record of a proposal that was judged once more, with one more in `looks`. Where
    the new judgement failed, keep the former result.
    """
    assert one.judged is not None
    looks = one.judged.looks + 1
    if found.error:
        return replace(one.judged, at=found.at, looks=looks)
    return replace(found, looks=looks)


def track(state_dir: Path, desk: Desk, now: float, stopping: Stopping) -> bool:
    """Run `pellucid served --log` to log whole weeks in MLflow, unless the latest is logged
    already. After a failure, try again in an hour at the earliest. Return whether weeks were
    logged.
    """
    log = structlog.get_logger(LOG)
    over = next((week.number for week in weeks(state_dir) if week.whole), None)
    marks = state_dir / served.FOLDER
    if over is None or (marks / f"{over}{LOGGED}").exists() or now < _tried(marks) + AGAIN_S:
        return False
    try:
        write_whole(marks / TRIED, json.dumps(now))
        asked = ["--state-dir", str(state_dir), "--params", str(desk.params), "--log"]
        ran = _run(desk, ["served", *asked], stopping)
        if ran is None or ran[0] != 0:
            log.warning("not_logged", week=over, why=ran[2] if ran else "stopped")
            return False
        write_whole(marks / f"{over}{LOGGED}", "")
    except OSError as error:
        log.warning("not_logged", week=over, why=str(error))
        return False
    log.info("logged", week=over)
    return True


def _tried(marks: Path) -> float:
    """Return when logging a week was last tried, seconds since the epoch; minus infinity where it
    never was.
    """
    try:
        return float(json.loads(read_text(marks / TRIED)))
    except (OSError, ValueError, TypeError):
        return -math.inf


def _written(path: Path, what: Judged | Done) -> bool:
    """Write the result of a judgement or a promotion to `path`. Return False where that failed, as
    on a full disk: the proposal is then tried again.
    """
    try:
        write(path, what)
    except OSError as error:
        structlog.get_logger(LOG).warning("unwritten", path=str(path), why=str(error))
        return False
    return True


def _judged(
    store: Store, one: Proposal, desk: Desk, clock: Callable[[], float], stopping: Stopping
) -> Judged | None:
    asked = ["--bundle", str(one.folder / BUNDLE), "--preview", "--why", one.proposed.why]
    trace = judged_on(store, one, desk)
    return _previewed(
        desk, [*asked, "--by", one.proposed.by, "--trace", str(trace)], clock, stopping
    )


def _previewed(
    desk: Desk, asked: Sequence[str], clock: Callable[[], float], stopping: Stopping
) -> Judged | None:
    ran = _promote(desk, asked, stopping)
    if ran is None:
        return None
    status, text, problem = ran
    try:
        found: Mapping[str, Any] = json.loads(text)
        return Judged(
            at=clock(),
            version=str(found["version"]),
            better=bool(found["better"]),
            reason=str(found["reason"]),
            compared=[str(line) for line in found["compared"]],
            outlook=str(found.get("outlook", "")),
        )
    except (ValueError, LookupError, TypeError):
        return Judged(at=clock(), error=problem or f"ended with {status}")


def _promoted(
    one: Proposal, desk: Desk, clock: Callable[[], float], stopping: Stopping
) -> Done | None:
    """Promote a proposed version of the models, or go back to the previous champion (the models in
    use before). Return the result, or None if the service was stopping. The command names the
    version, so that repeating it has no further effect.
    """
    assert one.wanted is not None
    judged = one.judged
    if one.back and judged is None:  # which version that is, before anything changes
        judged = _previewed(desk, ["--back", "--preview"], clock, stopping)
        if judged is None:
            return None
        if judged.error:
            return Done(at=clock(), error=judged.error)
        write(one.folder / JUDGED, judged)
    assert judged is not None
    asked = ["--yes", "--by", one.wanted.by]
    asked += ["--why", one.wanted.why] if one.wanted.why else []
    if one.back:
        asked += ["--back", judged.version]
    else:
        own = one.folder / JOBS
        asked += [judged.version, "--trace", str(own if own.exists() else _of_pipeline(desk))]
        asked += ["--anyway"] if one.wanted.anyway else []
    ran = _promote(desk, asked, stopping)
    if ran is None:
        return None
    status, _, problem = ran
    return Done(at=clock(), error="" if status == 0 else problem or f"ended with {status}")


def judged_on(store: Store, one: Proposal, desk: Desk) -> Path:
    """Return the file of jobs on which a proposal is judged: ended jobs of this service, written to
    the proposal's folder, where enough of them were submitted after those that the proposed models
    learned from; else the pipeline's jobs.
    """
    learned = Bundle.load(one.folder / BUNDLE).metadata.get("duration", {}).get("window_to")
    table = finished(store)
    if learned:
        since = datetime.fromisoformat(str(learned)).timestamp() * 1000
        moments = table.column("submit_time").cast(pa.int64()).to_pylist()
        users = table.column("user").to_pylist()
        new = [user for user, at in zip(users, moments, strict=True) if at > since]
        if len(new) >= LEAST_JOBS and len(set(new)) >= LEAST_USERS:
            write_table(one.folder / JOBS, table)
            return one.folder / JOBS
    return _of_pipeline(desk)


def _of_pipeline(desk: Desk) -> Path:
    return desk.params.parent / TRACE


def _promote(desk: Desk, asked: Sequence[str], stopping: Stopping) -> Ran | None:
    """Run `pellucid promote` with some arguments. Return its exit status, output and last error
    line, or None (see `_run`)."""
    files = ["--params", str(desk.params), "--out", str(desk.out), "--json"]
    return _run(desk, ["promote", *files, *asked], stopping)


def _run(desk: Desk, asked: Sequence[str], stopping: Stopping) -> Ran | None:
    """Run `pellucid`. Return its exit status, its output, and the last line of its errors;
    status 1 where it took longer than `LONGEST_S` and was killed. Return None where it was
    broken off because the service stops."""
    process = subprocess.Popen(
        ["nice", *desk.program, *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    waited = 0.0
    try:
        while True:
            try:
                out, problem = process.communicate(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                waited += POLL_S
                if stopping(0.0):
                    return None
                if waited >= LONGEST_S:
                    return 1, "", f"took longer than {LONGEST_S / 3600:g} h"
            else:
                lines = problem.decode(errors="replace").strip().splitlines() or [""]
                return process.returncode, out.decode(errors="replace"), lines[-1][:500]
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
