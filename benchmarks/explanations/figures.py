"""Computes the figures of the audit, over all worlds and for each."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import structlog

from benchmarks.calibration import Calibration, level
from benchmarks.explanations import live, running
from benchmarks.explanations.audit import Found, audit, shares
from benchmarks.explanations.foretold import forecasts
from benchmarks.explanations.reading import readable
from benchmarks.explanations.worlds import WORLDS

BUDGET = Path(__file__).parents[1] / "explanations_budget.json"
SERVICES = {"live-service": live.audit, "running-service": running.audit}
PHILLY = "philly-overload"
ENOUGH = 40  # runs named in a world, that a share of them says something
REPLICATES = 3  # more of each simulated world, for forecasts and ends: one draw says little of them
ROOM = 0.05  # between the odds in words and the share that was kept
NAMES = [*SERVICES, *(world.name for world in WORLDS)]


def one(name: str, data: Path, seed: int, waits: int, judged: bool = True) -> Found:
    """Audit one world (a simulated cluster with its jobs) in a process of its own, and return what
    the audit found. `judged` is as in `audit`."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if name in SERVICES:
        began = time.process_time()
        found = SERVICES[name](waits, seed)
        found.spent_s = time.process_time() - began
        return found
    world = next(world for world in WORLDS if world.name == name)
    return audit(world, data, seed, waits, judged=judged)


def draws(names: Sequence[str], seed: int, more: int) -> list[tuple[str, int]]:
    """Return the pairs (name of a world, seed) to audit: every world with `seed`, and each
    simulated world also with `more` further seeds."""
    simulated = [name for name in names if name not in SERVICES]
    replicates = [(name, seed + number) for number in range(1, 1 + more) for name in simulated]
    return [*((name, seed) for name in names), *replicates]


def of_forecasts(
    names: Sequence[str], data: Path, seeds: Sequence[int], waits: int
) -> dict[str, Any]:
    """Make forecasts in replicates (one for each seed) of the simulated worlds. Return how they
    turned out, over all and in each world.

    `batches_error` is the standard error, over replicates, of the share of batches that held.
    """
    runs = [(name, seed) for name in names if name not in SERVICES for seed in seeds]
    found = [one(name, data, seed, waits, judged=False) for name, seed in runs]
    whole = forecasts([f for o in found for f in o.foretold])
    shares = [s for o in found if (s := forecasts(o.foretold)["batches_p90"]) is not None]
    error = round(pstdev(shares) / sqrt(len(shares)), 4) if shares else None
    worlds = [
        {"world": name, "ends": ends(of), **forecasts([f for o in of for f in o.foretold])}
        for name, of in _by_world(found).items()
    ]
    return {
        "seeds": list(seeds),
        **whole,
        "replicates": len(shares),
        "batches_error": error,
        "ends": _kept_in(worlds),
        "skipped": [o.world for o in found if o.skipped],
        "worlds": worlds,
    }


def figures(found: Sequence[Found]) -> dict[str, Any]:
    """Return everything that the benchmark prints except the verdict, over all runs of each
    world.
    """
    told = [o for o in found if not o.skipped]
    agreed = [share for o in told for share in o.agreed]
    seconds = [s for o in told for s in o.cpu_s]
    worlds = [_of_world(name, of) for name, of in _by_world(found).items()]
    return {
        **shares(told),
        "sentences": _sentences([said for o in told for said in o.said]),
        "services": _services(told),
        "stable": round(fmean(agreed), 4) if agreed else None,
        "readable": readable([text for o in told for text in o.texts]),
        "forecasts": forecasts([f for o in told for f in o.foretold]),
        "answer_cpu_p50_s": round(level(seconds, 0.5), 3) if seconds else None,
        "answer_cpu_p99_s": round(level(seconds, 0.99), 3) if seconds else None,
        "ends": _kept_in(worlds),
        "worlds": worlds,
    }


def _sentences(said: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Return the share of right answers by kind of sentence, and a few wrong ones. The answers come
    from services into which no fault was planted.
    """
    kinds = {name: fmean(not one[name] for one in said) for name in (said[0] if said else ())}
    wrong = {name: [one[name] for one in said if one[name]][:3] for name in kinds}
    return {
        "answers": len(said),
        "right": round(min(kinds.values()), 4) if kinds else None,
        "kinds": {name: round(share, 4) for name, share in kinds.items()},
        "wrong": {name: some for name, some in wrong.items() if some},
    }


def _services(told: Sequence[Found]) -> dict[str, Any]:
    """Return how many questions running services were asked, the share that was answered, and the
    p50 and p99 of the ages of the answers in seconds.
    """
    ages = [age for o in told for age in o.ages]
    asked = sum(o.questions for o in told)
    return {
        "asked": asked,
        "answered": round(len(ages) / asked, 4) if asked else None,
        "age_p50_s": round(level(ages, 0.5), 2) if ages else None,
        "age_p99_s": round(level(ages, 0.99), 2) if ages else None,
    }


def _by_world(found: Sequence[Found]) -> dict[str, list[Found]]:
    by: dict[str, list[Found]] = {}
    for one in found:
        by.setdefault(one.world, []).append(one)
    return by


def ends(found: Sequence[Found]) -> dict[str, Any]:
    """Return, for each stated odds, how many of the runs that answers named had ended by the stated
    time.
    """
    kept: dict[float, list[bool]] = {}
    for odds, within_s, ended_s in (end for one in found for end in one.ends):
        kept.setdefault(odds, []).append(ended_s is not None and ended_s <= within_s)
    return {
        f"{odds:g}": {"runs": len(those), "kept": round(fmean(those), 4)}
        for odds, those in sorted(kept.items())
    }


def _kept_in(worlds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how well the odds for the ends of runs held ("ended within X nine times in ten"):
    the number of worlds (simulated clusters with their jobs) with enough such predictions, the
    number of those in which the share that held is within `ROOM` of 0.9, and whether the world of
    the Philly trace is one of the latter (1 or 0; None: too few predictions)."""
    nine = {one["world"]: one.get("ends", {}).get("0.9", {"runs": 0}) for one in worlds}
    told = {name: of["kept"] for name, of in nine.items() if of["runs"] >= ENOUGH}
    true = [name for name, kept in told.items() if round(abs(kept - 0.9), 4) <= ROOM]
    return {
        "worlds": len(told),
        "kept": len(true) if told else None,
        "philly": int(PHILLY in true) if PHILLY in told else None,
    }


def _of_world(name: str, of: Sequence[Found]) -> dict[str, Any]:
    """Return the figures of one world (a simulated cluster with its jobs), summed up over the runs
    `of` in it. If the world was skipped, return its name and the reason."""
    if of[0].skipped:
        return {"world": name, "skipped": of[0].skipped}
    told = forecasts([f for o in of for f in o.foretold])
    waits = [wait for o in of for wait in o.waits]
    shown = ("jobs", "jobs_p90", "batches_p90", "jobs_without_p90", "jobs_crude", "pinball")
    return {
        "world": name,
        **shares(of),
        "words_p50": readable([text for o in of for text in o.texts])["words_p50"],
        "forecasts": {figure: told[figure] for figure in shown},
        "ends": ends(of),
        "cpu_s": round(sum(o.spent_s for o in of), 1),
        "wrong": [f"{j} at {at:.0f}: {'; '.join(v.wrong)}" for j, at, v in waits if v.wrong],
        "unnamed": [f"{j} at {at:.0f}" for j, at, v in waits if not v.named],
        "untrue": [words for o in of for words in o.untrue],
    }


def verdict(found: dict[str, Any], calibration: Calibration) -> dict[str, Any]:
    """Return the bounds of the budget, which figures exceed them, which bounded figures are
    `missing`, and whether all bounds hold. A bound on a figure that was not measured does not hold.
    """
    flat = {name: value for name, value in found.items() if isinstance(value, int | float)}
    flat["counterfactuals_true"] = found["counterfactuals"]["true"]
    flat["earlier_true"] = found["counterfactuals"]["earlier_true"]
    flat["sentences_right"] = found["sentences"]["right"]
    flat |= {f"services_{name}": found["services"][name] for name in ("answered", "age_p99_s")}
    flat |= {name: found["readable"][name] for name in ("words_p50", "codes", "raw_names")}
    flat |= {f"ends_{name}": found["ends"][name] for name in ("kept", "philly")}
    made = found["forecasts"]
    names = ("jobs_p90", "batches_p90", "jobs_without_any", "jobs_without_p90")
    flat |= {name: made[name] for name in names} | _beside_rules(made["pinball"])
    known = {name: value for name, value in flat.items() if value is not None}
    told = calibration.judge(known, BUDGET)
    bounds = json.loads(BUDGET.read_text())
    missing = sorted({name for part in bounds.values() for name in part} - known.keys())
    return told | {"missing": missing, "holds": told["holds"] and not missing}


def _beside_rules(pinball: Mapping[str, Any]) -> dict[str, float]:
    """Return, at each level, the loss of the forecasts divided by that of the better of the two
    simple rules; {} without forecasts.
    """
    if not pinball["jobs"]:
        return {}
    return {
        f"{level}_loss_of_best_rule": round(
            pinball[f"{level}_s"]
            / max(1e-9, min(pinball[f"{rule}_{level}_s"] for rule in ("moving_average", "crude"))),
            4,
        )
        for level in ("p50", "p90")
    }
