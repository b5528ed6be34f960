"""Parts that the stages share: the paths of their files, and the parameters that they read."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from features.given import read_text
from features.yamls import NOT_YAML, printable
from pipeline.cluster import HERE
from pipeline.errors import UserError

DATA = Path("data")
CODE = DATA / "code"  # what the code of each stage says, a file each
TRACE = DATA / "trace"
DRAWS = DATA / "draws"  # further draws of the embedded trace, a dataset per seed
FEATURES = DATA / "features.parquet"
CANDIDATE = DATA / "candidate"
BUNDLE = DATA / "bundle"
RUNS = DATA / "runs"
METRICS = DATA / "metrics"
PLOTS = DATA / "plots"
REPORT = DATA / "report.html"

DAY_S = 86_400.0
DIGITS = 6  # of a figure that is written: the last ones of 16 differ by processor

Shown = Callable[[int, int], None]  # how many of how many parts of a stage are done


def unseen(done: int, of: int) -> None:
    """Ignore the progress of a stage. Used where a function that shows it is expected."""


def agreed(figures: Any) -> Any:
    """Return figures (plain JSON) with floats rounded to the digits on which all processors
    agree."""
    if isinstance(figures, float):
        return float(f"{figures:.{DIGITS}g}")
    if isinstance(figures, dict):
        return {name: agreed(one) for name, one in figures.items()}
    if isinstance(figures, list | tuple):
        return [agreed(one) for one in figures]
    return figures


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Ingest(_Strict):
    source: str = "synthetic"
    format: str = "auto"
    timezone: str | None = None
    scale: str = "demo"
    seed: int = 0


class Features(_Strict):
    families: list[str]


class Train(_Strict):
    test_days: float = Field(gt=0)
    preset: str = "full"
    pairs: str = "simulated"
    sharing: str | None = None
    edits: Path = Path("models/edits.yaml")
    seed: int = 0


class Evaluate(_Strict):
    refit_days: float = Field(gt=0)
    preset: str = "fast"
    seed: int = 0


class MLflow(_Strict):
    uri: str
    artifacts: str
    model: str
    promote: Literal["ask", "beyond-chance"] = "ask"


class Simulate(_Strict):
    policies: list[str] = Field(min_length=1)
    durations: str | None = None
    seed: int = 0
    draws: int = Field(default=5, ge=1)

    @property
    def seeds(self) -> list[int]:
        """Return the seed of each draw; the first is that of the trace itself."""
        return list(range(self.seed, self.seed + self.draws))


class Params(_Strict):
    """The content of `params.yaml`."""

    ingest: Ingest
    cluster: Path
    features: Features
    train: Train
    evaluate: Evaluate
    mlflow: MLflow
    simulate: Simulate


def read_params(path: Path = Path("params.yaml")) -> Params:
    """Return the parameters in a file. Raises UserError, which names the field, its value and what
    is accepted."""
    try:
        return Params.model_validate(yaml.safe_load(read_text(path)))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: {where} is {printable(first['input'])}: {first['msg']}") from None
    except NOT_YAML as error:
        raise UserError(f"{path}: not YAML ({str(error).partition(chr(10))[0]})") from None


def drawn(trace: Path, draws: Path, seed: int, first: int) -> Path:
    """Return the folder with the trace of a draw. If none was generated for this seed, return the
    first trace, which is then replayed with slightly moved submit times.

    Args:
        trace: folder of the first trace.
        draws: folder with the other generated traces.
        first: seed of the first trace.
    """
    again = draws / str(seed)
    return again if seed != first and again.is_dir() else trace


def workers() -> str:
    """Return a place to run tasks, for `pipeline.cluster.mapped`, with one process per processor,
    at most 8."""
    count = min(len(os.sched_getaffinity(0)), 8)
    return HERE if count == 1 else f"local:{count}"


def test_from(submit_time: pa.ChunkedArray, test_days: float) -> float:
    """Return when the test days begin, seconds since the epoch: `test_days` days before the end of
    the day (UTC) of the last submission. Raise UserError if no job is left to train on."""
    if not len(submit_time):
        raise UserError("the trace holds no job")
    last = pc.max(submit_time).cast(pa.int64()).as_py() / 1000
    midnight = datetime.fromtimestamp(last, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    cut = midnight.timestamp() + DAY_S - test_days * DAY_S
    first = pc.min(submit_time).cast(pa.int64()).as_py() / 1000
    if cut <= first:
        raise UserError(
            f"train.test_days is {test_days:g}, but the trace spans {(last - first) / DAY_S:.1f} "
            "days: nothing would be left to train on"
        )
    return cut
