"""Writes decisions to a Parquet file as they are taken.

Rows are buffered and written in groups, so memory stays flat however long the run. The file appears
under its name only when it is complete.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from features.files import replacing
from scheduler.core.decisions import Action, Decision

_LABEL = pa.dictionary(pa.int32(), pa.string())

DECISION_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("action", _LABEL, nullable=False),
        pa.field("reason", _LABEL, nullable=False),
        pa.field("job_id", pa.string(), nullable=False),
        pa.field("vc", _LABEL, nullable=False),
        pa.field("nodes", pa.list_(pa.int32())),
        pa.field("gpus", pa.list_(pa.int64())),  # a bit mask of GPU indices per node
        pa.field("partner", pa.string()),
        pa.field("priority", pa.float64()),
        pa.field("estimate_s", pa.float64()),
        pa.field("score", pa.float64()),
        pa.field("intercept", pa.float64()),
        pa.field("terms", pa.list_(pa.float64())),  # names: bundles.json, under `bundle`
        pa.field("inputs", pa.list_(pa.string())),  # feature values behind the terms
        pa.field("facts", pa.list_(pa.string())),  # what the last terms rest on: names of `Fact`
        pa.field("bundle", _LABEL),
        pa.field("tree_path", pa.list_(pa.string())),
        pa.field("speed", pa.float64()),  # predicted, of this job while it shares
        pa.field("partner_speed", pa.float64()),
        pa.field("blocker", pa.string()),
        pa.field("need", pa.int32()),
        pa.field("free", pa.int32()),
        pa.field("limit", pa.int32()),
        pa.field("position", pa.int32()),
        pa.field("batch_per_gpu", pa.int32()),
        pa.field("accumulation", pa.int32()),
        pa.field("evidence", pa.map_(pa.string(), pa.string())),
        pa.field("held_by", pa.list_(pa.string())),
    ]
)

ROW_GROUP = 16_384


class Recorder:
    """Writes decisions to a file. Use it as a context manager; an exception leaves no file
    behind.
    """

    def __init__(self, path: Path):
        self.path = path
        self.count = 0
        self._buffer: list[Decision] = []
        self._inputs = Inputs()
        self._opened = ExitStack()
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Recorder:
        with ExitStack() as opening:
            partial = opening.enter_context(replacing(self.path))
            writer = pq.ParquetWriter(partial, DECISION_SCHEMA, compression="zstd")
            self._writer = opening.enter_context(writer)
            self._opened = opening.pop_all()
        return self

    def __call__(self, decisions: list[Decision]) -> None:
        self._buffer.extend(decisions)
        if len(self._buffer) >= ROW_GROUP:
            self._flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            with self._opened:
                self._flush()
        else:
            self._opened.__exit__(kind, error, trace)

    def _flush(self) -> None:
        assert self._writer is not None
        if self._buffer:
            self._writer.write_table(decision_table(self._buffer, self._inputs))
            self.count += len(self._buffer)
            self._buffer = []


class Inputs:
    """Chooses the decisions with which the inputs of a score are recorded: the one that queues a
    job, and each later one whose score differs from the job's score before it.

    All others have a score whose inputs are recorded already.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by job: the hash of its last score, for little memory

    def recorded_with(self, decision: Decision) -> tuple[str, ...] | None:
        """Return the inputs to record with a decision; None: with this decision, none."""
        score = decision.score
        if score is None:
            return None
        now = hash((score.bundle, score.value, score.intercept, score.terms))
        before, self._last[decision.job_id] = self._last.get(decision.job_id), now
        return score.inputs if now != before or decision.action is Action.ENQUEUE else None


def decision_table(decisions: list[Decision], inputs: Inputs | None = None) -> pa.Table:
    """Return decisions as a table in `DECISION_SCHEMA`.

    Args:
        inputs: knows which scores were recorded in earlier tables; None: there is none.
    """
    scores = [d.score for d in decisions]
    inputs = inputs or Inputs()
    columns: dict[str, list[Any]] = {
        "seq": [d.seq for d in decisions],
        "time": [round(d.time * 1000) for d in decisions],
        "action": [d.action.value for d in decisions],
        "reason": [d.reason.value for d in decisions],
        "job_id": [d.job_id for d in decisions],
        "vc": [d.vc for d in decisions],
        "nodes": [d.nodes or None for d in decisions],
        "gpus": [d.gpus or None for d in decisions],
        "partner": [d.partner for d in decisions],
        "priority": [d.priority for d in decisions],
        "estimate_s": [d.estimate_s for d in decisions],
        "score": [s and s.value for s in scores],
        "intercept": [s and s.intercept for s in scores],
        "terms": [s and s.terms for s in scores],
        "inputs": [inputs.recorded_with(d) for d in decisions],
        "facts": [s and s.facts for s in scores],
        "bundle": [s and s.bundle for s in scores],
        "tree_path": [d.tree_path or None for d in decisions],
        "speed": [d.speeds and d.speeds[0] for d in decisions],
        "partner_speed": [d.speeds and d.speeds[1] for d in decisions],
        "blocker": [d.blocker for d in decisions],
        "need": [d.need for d in decisions],
        "free": [d.free for d in decisions],
        "limit": [d.limit for d in decisions],
        "position": [d.position for d in decisions],
        "batch_per_gpu": [d.batch and d.batch[0] for d in decisions],
        "accumulation": [d.batch and d.batch[1] for d in decisions],
        "evidence": [_text(d.evidence) if d.evidence else None for d in decisions],
        "held_by": [d.held_by or None for d in decisions],
    }
    arrays = [pa.array(columns[f.name], type=f.type) for f in DECISION_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=DECISION_SCHEMA)


def _text(evidence: tuple[tuple[str, float | str], ...]) -> list[tuple[str, str]]:
    return [(name, v if isinstance(v, str) else f"{v:.6g}") for name, v in evidence]
