"""Stage `features`: makes feature rows by replaying the trace through the state that also makes the
rows of live jobs."""

from __future__ import annotations

from features.files import write_table
from features.rows import training_rows
from pipeline.stages.common import FEATURES, TRACE, Params, Shown, unseen
from pipeline.traces import read_dataset


def run(params: Params, shown: Shown = unseen) -> str:
    rows = training_rows(read_dataset(TRACE), families=params.features.families)
    write_table(FEATURES, rows.agreed().table())
    return f"{len(rows):,} rows of {len(rows.features)} features"
