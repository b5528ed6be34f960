"""The commands of the one file `pellucid.pyz`: `why`, `eta` and `queue`."""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
from collections.abc import Sequence
from typing import Any

from features.codec import encode
from features.plain import plain
from pipeline.errors import UserError
from pipeline.printed import causes as printed_causes
from pipeline.printed import eta as printed_eta
from pipeline.printed import jobs as printed_jobs
from pipeline.printed.why import lines_of, node_lines, sooner_lines, waits_in_slurm
from scheduler.explain.share import sentences
from scheduler.slurm.look import Direct, NotThere
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.parse import ParseError

PROGRAM = "pellucid.pyz"
ABOUT = (
    "Ask your site's Slurm why a job waits, when a job would start, and which jobs you have. It "
    "only reads, with your own rights, and says what Slurm hides from you."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the answer to one question, and return 0. If it cannot be answered, print the
    reason in one line on stderr, and return 2."""
    asked = _parser().parse_args(arguments)
    try:
        look = Direct(Slurm(patience_s=asked.patience), pwd.getpwuid(os.getuid()).pw_name)
        answer, lines = _ANSWERS[asked.question](look, asked)
    except (SlurmDown, SlurmError, ParseError, NotThere, UserError) as error:
        print(f"{PROGRAM}: {plain(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps({"answer": answer, "hidden": look.hidden}, indent=2))
    else:
        print(plain("\n".join([*lines, *look.hidden])))  # others' names among them
    return 0


def _why(look: Direct, asked: argparse.Namespace) -> tuple[Any, list[str]]:
    if not asked.job:
        found, share = look.causes(everybody=asked.all), look.shares()
        lines = [*printed_causes.lines(found), *sentences(share)]
        return {**encode(found), "share": encode(share)}, lines
    if asked.nodes:
        by_node = look.by_node(asked.job)
        return encode(by_node), node_lines(by_node, look.now)
    if parts := look.parts(asked.job):
        return _of_parts(look, asked, parts)
    explained = look.why(asked.job)
    sooner = look.sooner(explained.job_id) if waits_in_slurm(explained) else None
    lines = lines_of(explained, look.now)
    if explained.job_id != asked.job:
        does = "runs" if explained.phase == "running" else "waits"
        first = f"{asked.job} is an array; {explained.job_id} is its first task that {does}."
        lines = [first, *lines]
    answer = encode(explained)
    if sooner is not None:
        answer, lines = answer | {"sooner": encode(sooner)}, [*lines, *sooner_lines(sooner)]
    return answer, lines


def _of_parts(look: Direct, asked: argparse.Namespace, parts: list[str]) -> tuple[Any, list[str]]:
    """Return the answers about all components of a heterogeneous job, as JSON and as lines. The
    first line says that the components start together."""
    found = [look.why(part) for part in parts]
    starts = f"{asked.job} is a heterogeneous job: {', '.join(parts)} start together."
    lines = [line for one in found for line in lines_of(one, look.now)]
    return {"job_id": asked.job, "parts": [encode(one) for one in found]}, [starts, *lines]


def _eta(look: Direct, asked: argparse.Namespace) -> tuple[Any, list[str]]:
    found = look.eta(printed_eta.with_script(asked.options))
    return encode(found), printed_eta.lines(found)


def _queue(look: Direct, asked: argparse.Namespace) -> tuple[Any, list[str]]:
    found = look.queue(everybody=asked.all)
    return [encode(job) for job in found], printed_jobs.lines(found, look.now)


_ANSWERS = {"why": _why, "eta": _eta, "queue": _queue}


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--json", action="store_true", help="print the answer as JSON, not as sentences"
    )
    common.add_argument(
        "--patience",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="longest wait for each of Slurm's commands, seconds (default: 10)",
    )
    parser = argparse.ArgumentParser(PROGRAM, description=ABOUT)
    of = parser.add_subparsers(dest="question", required=True, metavar="why | eta | queue")
    why = of.add_parser("why", parents=[common], help="why a job waits, and when it starts")
    of_whom = why.add_mutually_exclusive_group(required=True)
    of_whom.add_argument(
        "job", metavar="JOB", nargs="?", help="id as squeue shows it: 4711, 4711_3"
    )
    of_whom.add_argument(
        "--mine", action="store_true", help="count all of your waiting jobs, by cause"
    )
    of_whom.add_argument(
        "--all", action="store_true", help="count all waiting jobs that Slurm shows you, by cause"
    )
    why.add_argument("--nodes", action="store_true", help="print what keeps the job from each node")
    eta = of.add_parser(
        "eta", parents=[common], help="when a job would start; nothing is submitted"
    )
    eta.add_argument("options", nargs="+", metavar="-- SBATCH-OPTIONS [SCRIPT]")
    queue = of.add_parser("queue", parents=[common], help="your jobs, and when each starts")
    queue.add_argument(
        "--all", action="store_true", help="show everybody's jobs that Slurm shows you"
    )
    return parser


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, up to 3600")
    return found
