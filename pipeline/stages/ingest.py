"""Stage `ingest`: turns a trace into a dataset. The default trace is synthetic."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pipeline.cluster import mapped
from pipeline.stages.common import DRAWS, TRACE, Params, Shown, unseen, workers
from pipeline.traces import ingest
from pipeline.traces.synthetic import generate as synthetic


def run(params: Params, shown: Shown = unseen) -> str:
    wanted = params.ingest
    shutil.rmtree(DRAWS, ignore_errors=True)
    DRAWS.mkdir(parents=True)
    if wanted.source == "synthetic":
        config = synthetic.default_config(wanted.scale, wanted.seed)
        table = synthetic.write(config, TRACE)
        draw(params, DRAWS)
        return f"{table.num_rows:,} synthetic jobs ({wanted.scale}, seed {wanted.seed})"
    summary = ingest(Path(wanted.source), TRACE, format=wanted.format, timezone=wanted.timezone)
    return f"{summary.kept:,} of {summary.rows_in:,} rows kept ({wanted.source})"


def draw(params: Params, draws: Path) -> None:
    """Generate further draws of the synthetic trace: other users in other weeks on the same
    cluster, one for each seed after the first. Write them into the folder `draws`."""
    with mapped(workers()) as over:
        for _ in over(_Another(params, draws), params.simulate.seeds[1:]):
            pass


@dataclass(frozen=True)
class _Another:
    """A callable that writes the draw of a seed, and can be sent to another process."""

    params: Params
    draws: Path

    def __call__(self, seed: int) -> None:
        wanted = self.params.ingest
        again = wanted.seed + seed - self.params.simulate.seed
        synthetic.write(synthetic.default_config(wanted.scale, again), self.draws / str(seed))
