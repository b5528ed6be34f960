"""A thousand questions to a running service whose machine is busy, asked from outside.

    python -m benchmarks.explanations --questions 1000

The demo's service with real, short processes; beside it as many processes compute as there are
cores, and `ASKERS` ask at once, over HTTP, why jobs wait. Their answers are held against the log,
read with SQL: runs that are named were alive when it was asked, or the answer is older and says of
when it is; no job that waits is called over.
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from benchmarks.explanations.foretold import forecasts, of_log
from benchmarks.explanations.log import GIVES, Log
from benchmarks.serving import free_port
from pipeline.demo import run as demo
from pipeline.demo.plan import plan

ASKERS = 4
JOBS_PER_MINUTE = 90  # more than there is room for
OVER = ("ended", "cancelled", "lost", "refused")
LONGEST_S = 3000.0  # of asking
STATED_S = 3.0  # an answer older than this is printed with its age


@dataclass(frozen=True, slots=True)
class Answer:
    """Of one question: seconds since the epoch; `told`: what the API gave, None: nothing."""

    job_id: str
    asked_at: float
    answered_at: float
    told: dict[str, Any] | None


def measure(wanted: int, seed: int) -> dict[str, Any]:
    """Ask so many questions, and hold the answers against the log."""
    minutes = max(2.0, wanted / 50)  # nobody is left without jobs that wait
    stopping = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        demo.service(Path(folder) / "service", free_port()) as running,
        busy(multiprocessing.cpu_count()),
    ):
        sent = plan(round(JOBS_PER_MINUTE * minutes), minutes, seed)
        feeding = threading.Thread(target=demo.feed, args=(running, sent, stopping.is_set))
        feeding.start()
        try:
            answers = _ask(running, wanted, seed, feeding.is_alive)
            log = Log.read(Path(folder) / "service" / "pellucid.db")
        finally:
            stopping.set()
            feeding.join()
    return figures(answers, log)


def _compute() -> None:
    while True:
        pass


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """So many processes that compute without end."""
    burning = [multiprocessing.Process(target=_compute, daemon=True) for _ in range(cores)]
    for one in burning:
        one.start()
    try:
        yield
    finally:
        for one in burning:
            one.terminate()


def _ask(
    running: demo.Running, wanted: int, seed: int, going_on: Callable[[], bool]
) -> list[Answer]:
    random, until = Random(seed), time.monotonic() + LONGEST_S

    def get(path: str) -> Any:
        request = Request(f"{running.address}/api/v1{path}")
        request.add_header("Authorization", f"Bearer {running.secrets[demo.OPERATOR]}")
        with urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def one(job_id: str) -> Answer:
        asked_at = time.time()
        try:
            told = get(f"/jobs/{job_id}/explain?analyse=true")
        except (HTTPError, OSError):
            told = None
        return Answer(job_id, asked_at, time.time(), told)

    found: list[Answer] = []
    with ThreadPoolExecutor(ASKERS) as asking:
        while len(found) < wanted and time.monotonic() < until:
            waiting = [job["job_id"] for job in get("/jobs?phase=queued&limit=500")["items"]]
            if not waiting and not going_on():
                break
            if not waiting:
                time.sleep(0.2)
                continue
            round_ = [random.choice(waiting) for _ in range(min(4 * ASKERS, wanted - len(found)))]
            found += asking.map(one, round_)
    return found


def figures(answers: Sequence[Answer], log: Log) -> dict[str, Any]:
    """Ages, shares, and what was wrong; questions of jobs that had started count no age."""
    ages, named, alive, stated, wrong = [], 0, 0, 0, []
    unanswered, waits = 0, 0
    for one in answers:
        if one.told is None:
            unanswered += 1
            continue
        analysis = one.told["analysis"]
        if one.told["phase"] in OVER and not _gone(log, one.job_id, 0.0, one.answered_at):
            wrong.append(f"{one.job_id} is called over, and is not")
        if analysis is None:  # it has started meanwhile
            continue
        waits += 1
        if analysis["unavailable"]:
            if _began(log, one.job_id, one.answered_at):
                continue
            unanswered += 1
            wrong.append(f"{one.job_id}: {analysis['unavailable']}")
            continue
        age = one.answered_at - analysis["at"]
        ages.append(age)
        for holder in analysis["holders"]:
            if holder["kind"] != "running job":
                continue
            named += 1
            over = _gone(log, holder["job"], analysis["at"] - holder["ran_s"], one.asked_at)
            alive += not over
            stated += over and age >= STATED_S
            if over and age < STATED_S:
                wrong.append(f"{holder['job']} had ended, {age:.1f} s old")
    ages.sort()
    took = sorted(one.answered_at - one.asked_at for one in answers)
    return {
        "asked": len(answers),
        "answered": round(1 - unanswered / len(answers), 4),
        "of_jobs_that_waited": waits,
        "age_p50_s": _level(ages, 0.5),
        "age_p99_s": _level(ages, 0.99),
        "took_p50_s": _level(took, 0.5),
        "took_p99_s": _level(took, 0.99),
        "runs_named": named,
        "alive_when_asked": alive,
        "ended_and_age_stated": stated,
        "forecasts": forecasts(list(of_log(log))),
        "wrong": wrong[:10],
        "wrong_in_all": len(wrong),
    }


def _began(log: Log, job_id: str, by: float) -> bool:
    """Whether a job had been given GPUs by a time, or was over."""
    mine = (d for d in log.decisions if d["job_id"] == job_id and d["at"] <= by)
    given = any(d["body"]["action"] in GIVES for d in mine)
    return given or _gone(log, job_id, 0.0, by)


def _gone(log: Log, job_id: str, since: float, by: float) -> bool:
    """Whether a job had given up by a time the GPUs that it had since another."""
    at = log.gone(job_id, since)
    return at is not None and at < by


def _level(values: Sequence[float], level: float) -> float | None:
    return round(values[int(level * (len(values) - 1))], 2) if values else None
