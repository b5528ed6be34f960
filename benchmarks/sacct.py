"""Writes dumps as `sacct -X -a -D -P` prints them: of a simulated schedule, and of a large made-up
site.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from scheduler.simulation.loop import JobResult
from scheduler.simulation.work import Work

HEADER = (
    "JobID|JobName|User|Partition|Submit|Eligible|Start|End|Elapsed|Timelimit|State|ExitCode|"
    "NNodes|ReqTRES|AllocTRES"
)
STATES = {
    "completed": "COMPLETED",
    "failed": "FAILED",
    "cancelled": "CANCELLED by 1001",
    "timeout": "TIMEOUT",
    "node_fail": "NODE_FAIL",
}

# The site that is made up: nodes of eight GPUs by partition.
NODES = {"main": 52, "long": 38, "vision": 26, "short": 12}
GPUS, GPU_SHARES = (1, 2, 4, 8, 16, 32), (0.60, 0.12, 0.12, 0.12, 0.03, 0.01)
DAYS = 365


def clock(seconds: float) -> str:
    """Return a time, in seconds since 1970, as sacct writes it."""
    return datetime.fromtimestamp(round(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def span(seconds: float) -> str:
    """Return a length of time, in seconds, as sacct writes it."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02d}:{minutes:02d}:{left:02d}"


def render(
    path: Path, results: Iterable[JobResult], work: Mapping[str, Work], gpus_per_node: int
) -> int:
    """Write the results of a simulation as sacct would print them. Return the number of jobs
    written.
    """
    lines = [HEADER]
    for result in results:
        job, start, end = result.job, result.start_time, result.end_time
        if start is None or end is None:
            continue
        nodes = -(-job.gpus // gpus_per_node)
        tres = f"cpu={job.cpus or 4:g},gres/gpu={job.gpus},node={nodes}"
        limit = "" if job.time_limit_s is None else span(job.time_limit_s)
        lines.append(
            f"{job.job_id}|{job.name}|{job.user}|{job.vc}|{clock(job.submit_time)}"
            f"|{clock(job.submit_time)}|{clock(start)}|{clock(end)}|{span(end - start)}"
            f"|{limit}|{STATES[work[job.job_id].state.value]}|0:0|{nodes}|{tres}|{tres}"
        )
    path.write_text("\n".join(lines) + "\n")
    return len(lines) - 1


def large(path: Path, lines: int, seed: int = 0) -> None:
    """Write a dump of one year of a made-up site, with `lines` lines below the header.

    Three in ten jobs ask for no GPU, one line in twenty is a step, one in a thousand is broken (a
    NUL, a byte that is no UTF-8, cut short). The site's 1,024 GPUs are about three quarters busy.
    Starts are drawn at random, not scheduled, so the back-test of a replay means nothing on it.
    """
    rng = np.random.default_rng(seed)
    first = int(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
    submitted = np.sort(rng.integers(0, DAYS * 86_400, lines)) + first
    names = list(NODES)
    shares = np.array([NODES[name] for name in names], float)
    with path.open("wb") as file:
        file.write(f"{HEADER}|NodeList\n".encode())
        for at in range(0, lines, 100_000):
            submit = submitted[at : at + 100_000]
            n = len(submit)
            ran = np.clip(rng.lognormal(np.log(600), 2.1, n), 1, 7 * 86_400).astype(int)
            ran = np.minimum(ran * 3_836 * DAYS // max(1, int(lines * 0.665)), 10 * 86_400)
            wait = np.where(rng.random(n) < 0.3, rng.exponential(3_600, n), rng.uniform(0, 30, n))
            start = submit + wait.astype(int)
            where = rng.choice(len(names), n, p=shares / shares.sum())
            gpus = rng.choice(GPUS, n, p=GPU_SHARES)
            users, scripts = rng.zipf(1.5, n) % 400, rng.zipf(1.4, n) % 3_000
            kind = rng.random(n)
            limit = np.maximum(3_600, ran * rng.choice([1, 2, 4], n) // 3_600 * 3_600)
            text = [
                np.datetime_as_string(t.astype("datetime64[s]")).tolist()
                for t in (submit, start, start + ran)
            ]
            out = []
            for i in range(n):
                partition = names[where[i]]
                cards = 0 if kind[i] < 0.3 else int(gpus[i])
                nodes = -(-cards // 8) or 1
                tres = (
                    f"billing=8,cpu=8,{f'gres/gpu={cards},' if cards else ''}mem=64G,node={nodes}"
                )
                node = int(users[i]) % (NODES[partition] - nodes + 1) + 1
                job = f"{at + i + 1000}" if kind[i] < 0.95 else f"{at + i + 1000}.batch"
                line = (
                    f"{job}|run{scripts[i]}|user{users[i]}|{partition}|{text[0][i]}|{text[0][i]}|"
                    f"{text[1][i]}|{text[2][i]}|{span(int(ran[i]))}|{span(int(limit[i]))}|COMPLETED"
                    f"|0:0|{nodes}|{tres}|{tres}|{partition}[{node:03d}-{node + nodes - 1:03d}]"
                ).encode()
                if i % 1_000 == 7:
                    line = (
                        line[:40],
                        line.replace(b"run", b"r\0n"),
                        line.replace(b"run", b"r\xfcn"),
                    )[i // 1_000 % 3]
                out.append(line)
            file.write(b"\n".join(out) + b"\n")


def nodes(path: Path) -> None:
    """Write the nodes of the made-up site as `scontrol show nodes -o` does."""
    path.write_text(
        "\n".join(
            f"NodeName={name}{i:03d} Arch=x86_64 CPUTot=64 Gres=gpu:a100:8(S:0-1) State=IDLE "
            f"Partitions={name}"
            for name, count in NODES.items()
            for i in range(1, count + 1)
        )
        + "\n"
    )
