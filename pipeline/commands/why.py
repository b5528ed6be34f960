"""`pellucid why`: the service says why a job is where it is."""

from __future__ import annotations

import time
from typing import Any

import typer

from pipeline.commands.ps import OVER
from pipeline.console import user_errors
from pipeline.remote import (
    JOB,
    JSON,
    SERVER,
    TOKEN,
    between,
    connect,
    forecast_words,
    print_json,
)


def why(job: JOB, server: SERVER = None, token: TOKEN = None, as_json: JSON = False) -> None:
    """Say why a job waits (or runs where it does, or how it ended), and when it will start.

    One dominant reason, at most four principal ones with their numbers, and what would help. In
    front of Slurm, ids are Slurm's.

    Examples:

      pellucid why 7njjr7qk87fm

      pellucid why 4711_3
    """
    with user_errors(), connect(server, token) as client:
        explained = client.explain(job, analyse=True)
        now = client.cluster()["now"]
    if as_json:
        print_json(explained)
        return
    for line in told(explained, now):
        typer.echo(line)


def told(explained: dict[str, Any], now: float) -> list[str]:
    """An explanation in lines."""
    over = explained["phase"] in OVER
    stands = "over" if over else explained["phase"]
    lines = [f"{explained['job_id']} is {stands}: {explained['dominant']}"]
    first = next(iter(explained["principal"]), None)
    if first and first["need"] is not None and not over:  # its numbers are not those of now
        lines[0] += time.strftime(" (as of %H:%M)", time.localtime(first["since"]))
    lines.append(f"  {_times(explained['times'], now)}")
    if explained["detail"] not in ("", explained["dominant"]) and not over:
        lines.append(f"  {explained['detail']}")
    if explained["next_step"]:
        lines.append(f"  what helps: {explained['next_step']}")
    for ground in explained["principal"][1:]:
        when = f"{between(ground['since'], now)} ago"
        lines.append(f"  {'last decided' if over else 'earlier'} ({when}): {ground['text']}")
    standing = explained["standing"]
    if standing:
        lines.append(f"  place in line: {standing['position']} of {standing['waiting']}")
        lines.append(f"  forecast: {forecast_words(explained['forecast'], now)}")
    if explained["estimate_s"] is not None:
        lines.append(f"  predicted duration: {between(0.0, explained['estimate_s'])}")
    packing = explained["packing"]
    if packing:
        lines.append(f"  shares its GPUs with {packing['partner']}")
        if packing["speed"] is not None:
            lines.append(
                f"    predicted speed {packing['speed']:.0%}, of the other "
                f"{packing['partner_speed']:.0%}"
            )
        lines += [f"    {step}" for step in packing["tree_path"]]
    return lines + _analysed(explained["analysis"])


def _times(times: dict[str, float | None], now: float) -> str:
    """Submit, eligible and start, kept apart."""
    submitted, eligible, started = (
        times[name] for name in ("submitted_at", "eligible_at", "started_at")
    )
    words = [f"submitted {between(submitted, now)} ago"]
    if eligible is not None:
        words.append(f"eligible {between(submitted, eligible)} later")
    elif times["ended_at"] is None and started is None:
        words.append("not eligible yet")
    if started is not None:
        words.append(f"started {between(eligible or submitted, started)} after that")
    return ", ".join(words)


def _analysed(analysis: dict[str, Any] | None) -> list[str]:
    """What the analyst found by trying."""
    if analysis is None or analysis["unavailable"]:
        return []
    lines = []
    if analysis["blockers"]:
        first = analysis["blockers"][0]
        kind = "running" if first["running"] else "waiting"
        jobs = "job" if first["count"] == 1 else "jobs"
        lines.append(f"  without {first['count']} {kind} {jobs} it would start at once (tried)")
    for one in analysis["suggestions"]:
        gain = "at once" if one["starts_now"] else f"{between(0.0, one['gain_s'])} earlier"
        lines.append(f"  {one['words']} it would start {gain} (tried)")
    return lines + [f"  not examined: {what}" for what in analysis["not_examined"]]
