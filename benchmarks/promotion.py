"""Checks whether a worse candidate is refused, and a better one promoted, with models fitted on the
demo's trace.

`python -m benchmarks.promotion --seeds 9100:9107` prints a line per draw and candidate, then how
many were refused and promoted. A draw takes some minutes of a core. A candidate that is neither
better nor worse is judged again a week later, on the jobs that ended in all weeks since, `LOOKS`
times at most, as by the service; who is not better by then is not promoted. `--looks 1`: the first
week decides. `--draws 0`: by the jobs alone, a minute; a replayed week takes 14 s with both models.

- shuffled: learned from durations that were dealt out among the jobs.
- broken: one feature, by lot, was dealt out among the jobs it was trained on.
- half: learned from the later half of the history; the champion from all of it.
- twice: the champion learned from the later half, the candidate from all of it.

`--later` asks whether twice the history is better at all: on the week on which it is judged, and on
the four weeks after it, of a longer trace of the same kind.

`--watch` promotes the bad ones instead, by hand, and counts after how many jobs the service's watch
returns to the former champion (`shuffled`; `dealt`: learned from a trace whose durations were dealt
out before histories were made of them; `turned`: every shape upside down; `minutes`: in place of
seconds). A model keeps what the histories alone say, whatever else it learned: shuffled durations
cost it 2 to 4 % of its error (seeds 9201 to 9208), and to see that beyond chance takes 300 to 750
jobs that have nothing to do with each other; a day has 150 to 700, of some 25 users. What was
judged worse before it was promoted is therefore left once it is behind.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.rows import DAY_S, Rows, training_rows
from models.bundle import AdditiveModel, Bundle
from models.training.duration import fit_at
from models.training.judging import (
    LOOKS,
    Paired,
    better_in_all,
    drawn_again,
    judge,
    paired,
    undecided,
)
from models.training.metrics import LN10
from models.training.settled import settled
from pipeline.promotion import seen_until
from pipeline.replaying import DRAWS, replayed
from pipeline.stages.common import test_from
from pipeline.traces.synthetic import generate as synthetic
from pipeline.worlds.cluster_file import read_cluster
from scheduler.core.estimates import _text
from scheduler.service.log.beside import Began, as_of, beside
from scheduler.service.log.watch_models import FIRST, due, is_left

CLUSTER = Path(__file__).resolve().parents[1] / "pipeline/worlds/clusters/demo.yaml"
FAMILIES = "size", "survival", "burst"
TEST_DAYS, WEEKS_AFTER = 7.0, 4


class Draw:
    """The demo's trace, generated with one seed and `weeks` weeks longer than usual, and models
    that are fitted on it."""

    def __init__(self, seed: int, preset: str = "fast", *, weeks: int = 0) -> None:
        self.seed, self.preset = seed, preset
        demo = synthetic.default_config("demo", seed)
        days = demo.days + 7 * weeks
        config = replace(demo, days=days, jobs=demo.jobs * days // demo.days)
        self.trace: pa.Table = synthetic.generate(config)
        self.cut = test_from(self.trace.column("submit_time"), TEST_DAYS + 7.0 * weeks)
        self.rows = training_rows(self.trace, families=FAMILIES)
        self.draw = np.random.default_rng(seed)
        ids, users = self.trace.column("job_id").to_pylist(), self.trace.column("user").to_pylist()
        self.user = dict(zip(ids, users, strict=True))

    def judged(self, candidate: Bundle, champion: Bundle, moment: float) -> tuple[Paired, ...]:
        """Return how both compare on the jobs that came since they learned, and had ended by then:
        as `pipeline.promotion.judged`, with features made once.
        """
        since = seen_until(candidate, champion)
        known = (self.rows.time > since) & (self.rows.end_time <= moment)
        rows = self.rows.where(known & np.isfinite(self.rows.y))
        who = [self.user[job] for job in rows.job_id]
        return judge(candidate.duration, champion.duration, rows, who).figures

    def fitted(self, rows: Rows) -> Bundle:
        """Return a bundle fitted on what had ended when the test days begin."""
        fit = fit_at(rows, self.cut, seed=0, preset=self.preset)
        return settled(Bundle(duration=fit.model, metadata={"duration": dict(fit.metadata)}))

    def shuffled(self) -> Bundle:
        """Return a bundle fitted on shuffled durations."""
        y, ended = self.rows.y.copy(), np.flatnonzero(np.isfinite(self.rows.y))
        y[ended] = self.draw.permutation(y[ended])
        return self.fitted(replace(self.rows, y=y))

    def dealt(self) -> Bundle:
        """Return a bundle fitted on a trace whose durations were permuted among the jobs. The
        permutation comes before the features are computed.
        """
        ran = self.trace.column("duration_s").to_numpy(zero_copy_only=False).copy()
        ended = np.flatnonzero(np.isfinite(ran))
        ran[ended] = self.draw.permutation(ran[ended])
        kind = self.trace.schema.field("end_time").type
        start = self.trace.column("start_time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        over = pa.array(start + 1000.0 * ran, from_pandas=True).cast(pa.int64(), safe=False)
        trace = self.trace
        for name, column in (("duration_s", pa.array(ran, from_pandas=True)), ("end_time", over)):
            wanted = kind if name == "end_time" else column.type
            at = trace.schema.get_field_index(name)
            trace = trace.set_column(at, trace.schema.field(name), column.cast(wanted))
        return self.fitted(training_rows(trace, families=FAMILIES))

    def broken(self) -> Bundle:
        """Return a bundle fitted with one feature shuffled."""
        frame = self.rows.X.copy()
        numeric = list(frame.select_dtypes("float64"))
        name = numeric[int(self.draw.integers(len(numeric)))]
        frame[name] = self.draw.permutation(frame[name].to_numpy())
        return self.fitted(replace(self.rows, X=frame))

    def half(self) -> Bundle:
        """Return a bundle fitted on the later half of the history."""
        before = self.rows.time[self.rows.time < self.cut]
        return self.fitted(self.rows.where(self.rows.time >= np.median(before)))


def turned(good: Bundle) -> Bundle:
    """Return a bundle that predicts short durations for long jobs, and long ones for short jobs."""
    model = good.duration
    terms = [replace(term, scores=-term.scores) for term in model.terms]
    return replace_model(good, AdditiveModel(model.axes, terms, model.intercept, model.link))


def in_minutes(good: Bundle) -> Bundle:
    """Return a bundle whose durations are in minutes where seconds are expected."""
    model, less = good.duration, float(np.log(60.0))
    moved = AdditiveModel(model.axes, model.terms, model.intercept - less, model.link)
    return replace_model(good, moved)


def replace_model(bundle: Bundle, model: AdditiveModel) -> Bundle:
    """Return the bundle with another model of durations."""
    return Bundle(duration=model, metadata=bundle.metadata)


def watched(draw: Draw, promoted: Bundle, former: Bundle) -> tuple[int | None, int]:
    """Judge a bundle that was promoted by hand, as a service's watch does. Return after how many
    ended jobs the watch goes back to the former bundle (None: not within the first day's jobs), and
    how many jobs the first day has. A bundle that was judged worse before its promotion is given up
    sooner."""
    doubted = any(figure.verdict == "worse" for figure in draw.judged(promoted, former, np.inf))
    day = (draw.rows.time >= draw.cut) & (draw.rows.time < draw.cut + DAY_S)
    after = draw.rows.where((draw.rows.time >= draw.cut) & np.isfinite(draw.rows.y))
    jobs = int(day.sum())
    names = [spec.name for spec in promoted.duration.features]
    columns = {name: after.X[name].tolist() for name in names}
    known = [
        Began(
            user=draw.user[after.job_id[i]],
            inputs=tuple(_text(columns[name][i]) for name in names),
            job_id=after.job_id[i],
            started=float(after.end_time[i] - after.y[i]),
            ended=float(after.end_time[i]),
            counts=True,
        )
        for i in range(len(after))
    ]
    for count in sorted({due(n) or 0 for n in range(FIRST, jobs + 1)}):
        if is_left(beside("former", former, promoted, as_of(known, count)), doubted=doubted):
            return count, jobs
    return None, jobs


def compared(
    draw: Draw, candidate: Bundle, champion: Bundle, *, draws: int, looks: int
) -> Iterator[tuple[Paired, ...]]:
    """Yield all figures after each week, until they say better or worse. Where those on rows alone
    refuse the candidate, the weeks are not replayed.
    """
    since, spec = seen_until(candidate, champion), read_cluster(CLUSTER)
    for look in range(1, looks + 1):
        moment = draw.cut + 7 * look * DAY_S
        figures = draw.judged(candidate, champion, moment)
        if draws and not any(figure.verdict == "worse" for figure in figures):
            trace = ended_by(draw.trace, moment)
            figures += replayed(candidate, champion, trace, spec, since, draws=draws).figures
        yield figures
        if not undecided(figures):
            return


def ended_by(trace: pa.Table, moment: float) -> pa.Table:
    """Return the rows of the jobs of a trace that had ended by the time `moment`: a service can
    judge models on those only."""
    since = pc.cast(trace.column("submit_time").cast(pa.int64()), pa.float64())
    ended = pc.add(pc.divide(since, 1000.0), trace.column("duration_s"))
    return trace.filter(pc.fill_null(pc.less_equal(ended, moment), False))


def later(seed: int, preset: str) -> dict[str, Any]:
    """Compare models fitted on the whole history with models fitted on half of it. Return the gain
    of each figure: in the week on which candidates are judged, and in the weeks after.
    """
    draw = Draw(seed, preset, weeks=WEEKS_AFTER)
    whole, half = draw.fitted(draw.rows).duration, draw.half().duration
    week = draw.cut + 7 * DAY_S
    found: dict[str, Any] = {"seed": seed}
    for name, since, until in (("week", draw.cut, week), ("after", week, np.inf)):
        asked = (draw.rows.time >= since) & (draw.rows.time < until) & np.isfinite(draw.rows.y)
        rows = draw.rows.where(asked)
        who = [draw.user[job] for job in rows.job_id]
        _, place = np.unique(who, return_inverse=True)
        truth = np.log1p(rows.y)
        misses = [np.abs(model.score_batch(rows.X) - truth) / LN10 for model in (whole, half)]
        weights = drawn_again(int(place.max()) + 1, np.random.default_rng(0))[:, place]
        means = [weights @ miss / weights.sum(axis=1) for miss in misses]
        figures = (*judge(whole, half, rows, who).figures, paired("MAE of log10", means, sign=-1.0))
        found[name] = {
            one.title: [round(one.gain, 5), one.verdict] for one in figures if one is not None
        }
    return found


def turned_round(one: Paired) -> Paired:
    """Return the figure with candidate and champion in each other's place."""
    return replace(
        one,
        candidate=one.champion,
        champion=one.candidate,
        gain=-one.gain,
        low=-one.high,
        high=-one.low,
    )


def outcomes(draw: Draw, kinds: list[str], *, draws: int, looks: int) -> Iterator[dict[str, Any]]:
    """Yield, for each kind of candidate, whether it is promoted, whether it was judged worse, after
    how many weeks, and its last figures."""
    whole = draw.fitted(draw.rows)
    half = draw.half() if {"half", "twice"} & set(kinds) else whole
    twice: list[tuple[Paired, ...]] = []
    for kind in sorted(kinds, key=lambda kind: kind == "half"):
        if kind == "half" and twice:  # the same pair, each in the other's place
            found = [tuple(map(turned_round, figures)) for figures in twice]
        else:
            candidate = half if kind == "half" else getattr(draw, kind, lambda: whole)()
            champion = half if kind == "twice" else whole
            found = list(compared(draw, candidate, champion, draws=draws, looks=looks))
        twice = found if kind == "twice" else twice
        yield {
            "seed": draw.seed,
            "kind": kind,
            "promoted": better_in_all(found[-1]),
            "worse": any(figure.verdict == "worse" for figure in found[-1]),
            "looks": len(found),
            "figures": {figure.title: figure.document() for figure in found[-1]},
        }


def main() -> None:
    """Print a line per candidate, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", default="9100:9107", help="range of seeds, FIRST:AFTER. Seed AFTER is not used"
    )
    parser.add_argument("--kinds", default="shuffled,broken,half,twice")
    parser.add_argument(
        "--draws", type=int, default=DRAWS, help="number of replays; 0: the jobs alone decide"
    )
    parser.add_argument("--looks", type=int, default=LOOKS, help="number of weeks judged, at most")
    parser.add_argument("--preset", default="fast", help="effort of fitting a model: fast or full")
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--later", action="store_true")
    wanted = parser.parse_args()
    first, after = map(int, wanted.seeds.split(":"))
    if wanted.later:
        for seed in range(first, after):
            print(json.dumps(later(seed, wanted.preset)), flush=True)
        return
    if wanted.watch:
        for seed in range(first, after):
            draw = Draw(seed, wanted.preset)
            good = draw.fitted(draw.rows)
            half = draw.half()
            bad = {
                "dealt": draw.dealt(),
                "shuffled": draw.shuffled(),
                "turned": turned(good),
                "minutes": in_minutes(good),
            }
            for kind, promoted in bad.items():
                count, jobs = watched(draw, promoted, good)
                print(f"{seed} {kind}: returned after {count} of {jobs} jobs of a day", flush=True)
            count, jobs = watched(draw, good, half)
            print(f"{seed} twice, a good one: returned after {count} of {jobs}", flush=True)
        return
    counts = Counter[tuple[str, bool]]()
    kinds = wanted.kinds.split(",")
    for seed in range(first, after):
        draw = Draw(seed, wanted.preset, weeks=wanted.looks - 1)
        for found in outcomes(draw, kinds, draws=wanted.draws, looks=wanted.looks):
            counts[found["kind"], found["promoted"]] += 1
            print(json.dumps(found), flush=True)
    for kind in kinds:
        yes, no = counts[kind, True], counts[kind, False]
        print(f"{kind}: promoted {yes}, refused {no}")


if __name__ == "__main__":
    main()
