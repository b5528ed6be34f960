"""`pellucid evaluate heterogeneity`: predicted speeds on other types of GPU, on Gavel's table of
measured rates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from features.codec import Json
from features.given import LARGE, read_text
from models.training.errors import TrainingError
from models.training.gputypes import Measured, evaluate_gpu_types, fit_gpu_types

UNCONSOLIDATED = "_unconsolidated"  # ends the name of a type: gangs that were scattered
_KEY = re.compile(r"\('(?P<family>.+?)(?: \(batch size (?P<batch>\d+)\))?', (?P<gpus>\d+)\)")


def run(data: Path, *, seed: int = 0) -> Json:
    """Return the errors with model families, and with configurations, left out of the fit, and the
    model fitted on everything.

    Args:
        data: folder with `gavel/simulation_throughputs.json`.
        seed: ignored: nothing here is random.
    """
    measured = read_rates(data / "gavel" / "simulation_throughputs.json")
    alone = [m for m in measured if m.gpus == 1]
    model = fit_gpu_types(measured)
    return {
        "one_gpu": evaluate_gpu_types(alone),
        "all_gang_sizes": evaluate_gpu_types(measured),
        "model": model.parts()[0],
    }


def read_rates(path: Path) -> list[Measured]:
    """Return the rates in a table like Gavel's, for jobs that run alone and consolidated. Raises
    TrainingError, which names the fault, if the table cannot be read."""
    try:
        table: Mapping[str, Any] = json.loads(read_text(path, LARGE))
        found: dict[str, dict[str, float]] = {}
        for gpu_type in sorted(table.keys()):
            if gpu_type.endswith(UNCONSOLIDATED):
                continue
            for key, rates in table[gpu_type].items():
                found.setdefault(key, {})[gpu_type] = float(rates["null"])
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrainingError(f"{path}: not a table of throughputs ({error!r})") from None
    measured = []
    for key, by_type in found.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise TrainingError(f"{path}: {key!r} names no model and gang size")
        batch = match["batch"]
        measured.append(
            Measured(match["family"], int(batch) if batch else None, int(match["gpus"]), by_type)
        )
    return measured
