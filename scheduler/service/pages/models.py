"""The page of the models in use: what they learned, and whether jobs still look like the training
data.

The categories of a feature may be names of users or jobs. So only operators see the charts of such
features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.watch import Alarm
from models.bundle import AdditiveModel, Bundle, Term
from scheduler.charts.chart import Chart, against, duration_axis
from scheduler.charts.drift import Drift, drift
from scheduler.charts.importance import Bar, importance, ranked
from scheduler.charts.shapes import heat, shape
from scheduler.charts.trees import Drawing, trees
from scheduler.explain.words import duration, factor, number
from scheduler.service.pages.queries import Outcome

Floats = NDArray[np.float64]

SHAPES, PAIRS = 8, 4
NO_BUNDLE = (
    "No bundle of models is in use (serve --bundle): every job starts from one estimate, and what "
    "has ended here corrects it."
)


@dataclass(frozen=True)
class Models:
    """The content of the page of the models. `missing`: why no models can be shown; "": they
    are.
    """

    missing: str = ""
    digest: str = ""
    facts: Sequence[tuple[str, str]] = ()
    importance: Sequence[Bar] = ()
    shapes: Sequence[Chart] = ()
    pairs: Sequence[Chart] = ()
    packing: Drawing | None = None
    pair_speed: Drawing | None = None
    pair_hinge: Drawing | None = None
    hidden: int = 0
    drift: Sequence[Drift] = ()
    drift_jobs: int = 0
    unlike: Sequence[Alarm] = ()
    accuracy: Chart | None = None


def models(
    bundle: Bundle | None,
    live: Sequence[Sequence[str]],
    ended: Sequence[Outcome],
    *,
    sees_names: bool,
    follows: bool = False,
    digest: str = "",
    odd: Sequence[Alarm] = (),
) -> Models:
    """Return the content of the page of the models.

    Args:
        bundle: the models in use; None: there are none, or they cannot be read.
        live: feature values of the latest jobs, as text, in the order of the bundle's features.
        ended: ended jobs, for the chart of predicted against true durations.
        sees_names: whether the viewer may see names of users and jobs.
        follows: whether the service follows a Slurm, and learns from the jobs that it sees.
        digest: digest of the bundle that decides, also where it cannot be read; "": none decides.
        odd: alarms about jobs of the last day that are unlike those of the weeks before; shown only
            to those who see names.
    """
    accuracy = _accuracy(ended)
    odd = odd if sees_names else ()
    if bundle is None and digest:
        what = f"The copy of the bundle in use ({digest[:12]}) is missing from the state folder."
        return Models(what, accuracy=accuracy, unlike=odd)
    if bundle is None and follows:
        how = "durations are learned from the jobs that were seen to run in Slurm"
        return Models(f"No bundle of models is in use: {how}.", accuracy=accuracy, unlike=odd)
    if bundle is None:
        return Models(NO_BUNDLE, unlike=odd)
    has = set(bundle.parts)
    if "duration" not in has:
        no_durations = "The bundle in use predicts no durations."
        return Models(no_durations, accuracy=accuracy, unlike=odd)
    model = bundle.duration
    drawn = [t for t in model.terms if sees_names or not _nominal(model, t)]
    drifted = drift(model, live, sees_names)
    return Models(
        "",
        bundle.digest,
        _facts(bundle),
        importance(model),
        [shape(model, t, f"shape-{i}") for i, t in enumerate(ranked(drawn, 1, SHAPES))],
        [heat(model, t, f"pair-{i}") for i, t in enumerate(ranked(drawn, 2, PAIRS))],
        *trees(bundle),
        len(model.terms) - len(drawn),
        drifted,
        len(live),
        odd,
        accuracy,
    )


def _nominal(model: AdditiveModel, term: Term) -> bool:
    return any(model.axes[i].spec.kind == "nominal" for i in term.features)


# --- what it is ----------------------------------------------------------------------------------


def _facts(bundle: Bundle) -> list[tuple[str, str]]:
    trained: Mapping[str, Any] = bundle.metadata.get("duration") or {}
    facts = [("digest", bundle.digest), ("made by", bundle.created_by)]
    for label, name in (
        ("training rows", "rows"),
        ("from", "window_from"),
        ("to", "window_to"),
        ("training data", "data_digest"),
    ):
        if trained.get(name) is not None:
            value = trained[name]
            facts.append((label, number(value) if isinstance(value, int) else str(value)[:25]))
    origin = (bundle.metadata.get("packing") or {}).get("origin")
    if origin:
        facts.append(("pairs", str(origin)))
    if origin == "measured":
        facts.append(("GPUs shared by", bundle.sharing or "not known"))
    return facts


def _accuracy(ended: Sequence[Outcome]) -> Chart | None:
    """Return a chart of predicted against true durations of jobs that ended by themselves; None
    where fewer than five are known."""
    seen = [
        (max(o.estimate_s, 0.1), max(o.ran_s, 0.1))
        for o in ended
        if o.estimate_s is not None and o.state in ("completed", "failed")
    ][:1000]
    if len(seen) < 5:
        return None
    ratios = np.array([ran / estimate for estimate, ran in seen])
    low, mid, high = (float(v) for v in np.quantile(ratios, (0.1, 0.5, 0.9)))
    return Chart(
        name="accuracy",
        title="Predicted and true durations",
        label=f"Predicted against true durations of {len(seen)} jobs: the true one "
        f"is {factor(mid)} of the predicted in the middle, {factor(low)} to {factor(high)} "
        "for 8 of 10",
        spec=against(
            [
                {"x": a, "y": b, "tip": f"predicted {duration(a)}, took {duration(b)}"}
                for a, b in seen
            ],
            duration_axis("x", "predicted"),
            duration_axis("y", "on GPUs"),
        ),
        head=("jobs", "true / predicted: 10 %", "50 %", "90 %"),
        rows=[[str(len(seen)), factor(low), factor(mid), factor(high)]],
        note=f"The last {len(seen)} jobs that ended by themselves. A slowdown by sharing "
        "is in the true one.",
    )
