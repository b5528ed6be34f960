"""Makes the first page of `make demo` within seconds, while the training libraries are still being
installed.

The models are those in `data/prebuilt`, which an earlier run of the pipeline made. Trace, schedules
and explanations are made now, for one draw (seed). Later the pipeline makes everything, including
the models, for five draws.

    python -m pipeline.demo.first           # unless the pipeline's own report is there
    python -m pipeline.demo.first --keep    # what the pipeline made here becomes the prebuilt
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from features.files import write_whole
from pipeline.console import alive, user_errors
from pipeline.errors import UserError
from pipeline.report.build import Inputs, build
from pipeline.stages.common import (
    BUNDLE,
    DATA,
    METRICS,
    REPORT,
    Params,
    Shown,
    read_params,
    unseen,
)
from pipeline.stages.ingest import draw
from pipeline.stages.simulate import compared
from pipeline.traces.synthetic import generate as synthetic

PREBUILT = DATA / "prebuilt"
ERRORS = "evaluate.json"
FIRST = DATA / "first"
DRAWS = 3  # what a minute has room for, on two cores
POLICIES = ("fifo", "lucid", "pellucid")


def run(params: Params, prebuilt: Path, out: Path, shown: Shown = unseen) -> Path:
    """Make the page and everything that it is made from in the folder `out`, which is emptied
    first. Return the path of the page.

    Args:
        prebuilt: folder with the prebuilt models.
        shown: called with (parts done, all parts).
    """
    shutil.rmtree(out, ignore_errors=True)
    trace, runs, bundle = out / "trace", out / "runs", prebuilt / "bundle"
    synthetic.write(synthetic.default_config(params.ingest.scale, params.ingest.seed), trace)
    wanted = params.simulate
    drawn = min(DRAWS, wanted.draws)
    policies = [name for name in wanted.policies if name in POLICIES] or wanted.policies
    few = wanted.model_copy(update={"draws": drawn, "policies": policies})
    once = params.model_copy(update={"simulate": few})
    draws = out / "draws"
    draw(once, draws)
    compared(once, trace=trace, draws=draws, bundle=bundle, out=runs, shown=shown)
    made = build(
        Inputs(
            runs,
            bundle,
            trace,
            prebuilt / ERRORS,
            coming=wanted.draws - drawn,
            tried=1,
            public=True,
        )
    )
    write_whole(out / "report.html", made.html)
    return out / "report.html"


def keep() -> None:
    """Replace the prebuilt models by those that the pipeline made in this checkout."""
    shutil.rmtree(PREBUILT, ignore_errors=True)
    shutil.copytree(BUNDLE, PREBUILT / "bundle")
    shutil.copy(METRICS / ERRORS, PREBUILT / ERRORS)


def main(asked: list[str]) -> int:
    """Make the first page, or with `--keep` replace the prebuilt models. Make no page if the
    pipeline's report exists, or if the trace is not the synthetic one. Return the exit
    status."""
    try:
        with user_errors():
            if asked == ["--keep"]:
                keep()
                return 0
            params = read_params()
            if REPORT.exists() or params.ingest.source != "synthetic":
                return 0  # of another trace nothing is prebuilt
            print("A first page, by models made before; a few draws of the embedded trace:")
            with alive("first page") as shown:
                page = run(params, PREBUILT, FIRST, shown)
    except UserError as error:
        print(f"first page: {error}", file=sys.stderr)
        return 2
    print(f"Open {page} in a browser. Ask about any job on it:")
    print(f"  .venv/bin/pellucid explain JOB --run {FIRST / 'runs/pellucid'}")
    print(
        f"Now the whole: training libraries, models and {params.simulate.draws} draws.", flush=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
