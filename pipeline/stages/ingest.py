"""Stage `ingest`: a trace becomes a dataset. The default trace is synthetic."""

from __future__ import annotations

from pathlib import Path

from pipeline.stages.common import TRACE, Params, stage
from pipeline.traces import ingest
from pipeline.traces.synthetic import generate as synthetic


def run(params: Params) -> str:
    wanted = params.ingest
    if wanted.source == "synthetic":
        config = synthetic.default_config(wanted.scale, wanted.seed)
        table = synthetic.write(config, TRACE)
        return f"{table.num_rows:,} synthetic jobs ({wanted.scale}, seed {wanted.seed})"
    summary = ingest(Path(wanted.source), TRACE, format=wanted.format, timezone=wanted.timezone)
    return f"{summary.kept:,} of {summary.rows_in:,} rows kept ({wanted.source})"


if __name__ == "__main__":
    stage("ingest", run)
