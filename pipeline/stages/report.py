"""Stage `report`: writes one HTML page about the trace, the models and the policies compared."""

from __future__ import annotations

from features.files import write_whole
from pipeline.errors import UserError
from pipeline.report.build import Inputs, build
from pipeline.stages.common import (
    BUNDLE,
    METRICS,
    REPORT,
    RUNS,
    TRACE,
    Params,
    Shown,
    unseen,
)

TRIED = 2  # jobs for which changes are tried: each takes seconds


def run(params: Params, shown: Shown = unseen) -> str:
    made = build(
        Inputs(
            compare=RUNS,
            bundle=BUNDLE,
            trace=TRACE,
            metrics=METRICS / "evaluate.json",
            learning=METRICS / "learning.json",
            tried=TRIED,
            public=params.ingest.source == "synthetic",
        )
    )
    write_whole(REPORT, made.html)
    if made.problems:
        raise UserError(f"{REPORT} was written, but {made.problems[0]}")
    return f"{REPORT}: {made.headline[0]}"
