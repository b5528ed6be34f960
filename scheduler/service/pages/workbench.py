"""A change of a shape function (the curve of one feature in a model) by hand, and its effect,
before it is saved.

The change is one of those that an edits file can hold (docs/editing-models.md). It is tried on the
model in use, and on ended jobs that this model scored. Training makes the change again, and
decides: it also flattens pairs of features, and refuses a change that breaks a promised direction
or costs too much.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from features.files import write_whole
from features.given import read_text
from features.spec import Value
from models.bundle import AdditiveModel, Axis, Bundle, Term
from scheduler.charts.chart import Chart
from scheduler.charts.shapes import factor_text, shape, span
from scheduler.service.log.beside import Ended

Floats = NDArray[np.float64]

KINDS = {
    "clip": "clip: hold it between two scores",
    "fix": "flatten: one score from here to there",
    "rise": "monotone: it never falls",
    "fall": "monotone: it never rises",
    "draw": "draw: as dragged",
}
MOST_SCORE = 20.0  # as training takes it
GPUS_UP_TO = (1, 4, 8)  # classes of gang size
MOVED = 10  # predictions that are listed
MOST_PARTS = 48  # of a shape that is drawn: more are too narrow to drag
ROOM = 1.5  # above and below a shape that is drawn


class NoEdit(ValueError):
    """Raised where a change of a shape cannot be made. The text is a sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A change of a shape function, as text from the form.

    Attributes:
        feature: the feature of the shape. kind: the kind of change, one of `KINDS`.
        low, high: for "clip", the limits of the score; for "fix", the ends of the region ("": no
            end).
        score: for "fix", the score of the region.
        points: for a drawn shape, "from:to:score" for each part that was moved, with ";" between.
        why: the reason, which is kept with the edit.
    """

    feature: str = ""
    kind: str = ""
    low: str = ""
    high: str = ""
    score: str = ""
    points: str = ""
    why: str = ""

    def entries(self, by: str, on: date) -> Sequence[Mapping[str, object]]:
        """Return the change as entries of an edits file. Raise NoEdit where it is not a valid
        change.
        """
        if not self.why.strip():
            raise NoEdit("Say why: it is kept with the edit.")
        changes: list[dict[str, object]] = []
        if self.kind == "clip":
            low, high = self._between()
            changes.append({"clip": {"low": low, "high": high}})
        elif self.kind in ("fix", "draw"):
            changes += [
                {"fix": {"from": start, "to": to, "score": score}}
                for start, to, score in self._regions()
            ]
        else:
            changes.append({"monotone": self._direction()})
        about = {"why": self.why.strip(), "by": by, "on": on}
        return [{"feature": self.feature, **change, **about} for change in changes]

    def changed(self, model: AdditiveModel) -> AdditiveModel:
        """Return the model with the shape changed. Raise NoEdit where that change cannot be
        made.
        """
        place, term, axis = editable(model).get(self.feature, (None, None, None))
        if place is None or term is None or axis is None:
            raise NoEdit(f"There is no shape {self.feature!r} that can be changed here.")
        if self.kind == "clip":
            scores = np.clip(term.scores, *self._between())
        elif self.kind in ("fix", "draw"):
            scores = term.scores
            for start, to, score in self._regions():
                scores = np.where(_within(axis, start, to), score, scores)
        else:
            direction = self._direction()
            if axis.spec.monotone not in (0, direction):
                raise NoEdit(f"{self.feature} promises the other direction.")
            scores = term.scores.copy()
            scores[1:] = isotonic(term.scores[1:], term.weights[1:], direction)
        steps = axis.spec.monotone * np.diff(scores[1:])
        if steps.size and steps.min() < -1e-9:
            raise NoEdit(f"{self.feature} promises to be monotone: this would break it.")
        terms = list(model.terms)
        terms[place] = replace(term, scores=scores, origin="edited")
        return AdditiveModel(model.axes, terms, model.intercept, model.link)

    def _between(self) -> tuple[float, float]:
        low, high = _number(self.low, "lowest score"), _number(self.high, "highest score")
        if low > high:
            raise NoEdit("The lowest score is above the highest.")
        return low, high

    def _regions(self) -> Sequence[tuple[float | None, float | None, float]]:
        """Return what the change sets, as (from, to, score): the region of a "fix", or each moved
        part of a drawn shape. An end of None is open. Raise NoEdit where a text cannot be read.
        """
        if self.kind == "fix":
            return [_region(self.low, self.high, self.score)]
        parts = [part.split(":") for part in self.points.split(";") if part.strip()]
        if not parts:
            raise NoEdit("Nothing was moved.")
        if len(parts) > MOST_PARTS or any(len(part) != 3 for part in parts):
            raise NoEdit(f"Parts: from:to:score, with ; between, at most {MOST_PARTS}.")
        return [_region(*(text.strip() for text in part)) for part in parts]

    def _direction(self) -> int:
        if self.kind not in ("rise", "fall"):
            raise NoEdit("Choose a change.")
        return 1 if self.kind == "rise" else -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Mean error |ln(true / predicted)| of a group of ended jobs, before and after an edit. `of`:
    the group in words.
    """

    of: str
    jobs: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A job whose prediction changes. Times are seconds."""

    job_id: str
    user: str
    before_s: float
    after_s: float
    ran_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The effect of a change.

    Attributes:
        charts: the shape before and after.
        groups: errors over all jobs, and over groups of them.
        moved: predictions that change most. changed: number of predictions that change by a tenth
            or more.
    """

    charts: tuple[Chart, Chart]
    groups: tuple[Group, ...]
    moved: tuple[Moved, ...]
    changed: int


def editable(model: AdditiveModel) -> dict[str, tuple[int, Term, Axis]]:
    """Return the shapes that can be changed, those of numeric features, by feature: (index of the
    term, term, axis).
    """
    return {
        model.axes[term.features[0]].spec.name: (place, term, model.axes[term.features[0]])
        for place, term in enumerate(model.terms)
        if len(term.features) == 1 and model.axes[term.features[0]].spec.kind == "continuous"
    }


def tried(model: AdditiveModel, asked: Asked, ended: Sequence[Ended]) -> Tried:
    """Return what a change would do to the predictions of ended jobs. Raise NoEdit where the change
    cannot be made.
    """
    after = asked.changed(model)
    place, term, _ = editable(model)[asked.feature]
    charts = (
        replace(shape(model, term, "before"), title="As it is"),
        replace(shape(after, after.terms[place], "after"), title="As it would be"),
    )
    rows = [row_of(model, one.inputs) for one in ended]
    scores = np.array([[m.score(row) for row in rows] for m in (model, after)]).reshape(2, -1)
    truth = np.log1p([one.ran_s for one in ended])
    errors = np.abs(scores - truth)
    shift = np.abs(scores[1] - scores[0])
    return Tried(
        charts=charts,
        groups=tuple(groups_of(model, rows, errors)),
        moved=most_moved(model, after, ended, scores),
        changed=int((shift > math.log(1.1)).sum()),
    )


def most_moved(
    before: AdditiveModel, after: AdditiveModel, ended: Sequence[Ended], scores: Floats
) -> tuple[Moved, ...]:
    """Return the predictions that differ most between two models, at most `MOVED`.

    Args:
        scores: scores of the jobs by the two models, an array of shape (2, number of jobs).
    """
    shift = np.abs(scores[1] - scores[0])
    order = [int(i) for i in np.argsort(-shift, kind="stable")[:MOVED] if shift[i] > 0]
    return tuple(
        Moved(
            job_id=ended[i].job_id,
            user=ended[i].user,
            before_s=before.seconds(float(scores[0, i])),
            after_s=after.seconds(float(scores[1, i])),
            ran_s=ended[i].ran_s,
        )
        for i in order
    )


def saved(path: Path, asked: Asked, by: str, on: date) -> int:
    """Add a change to an edits file. Return the number of edits that the file then holds. Raise
    NoEdit where the change is not valid.
    """
    known: list[object] = []
    if path.exists():
        held = yaml.safe_load(read_text(path)) or {}
        known = list(held.get("edits") or [])
    known += map(dict, asked.entries(by, on))
    held = {"version": 1, "model": "duration", "edits": known}
    write_whole(path, yaml.safe_dump(held, sort_keys=False, allow_unicode=True))
    return len(known)


def with_shape(bundle: Bundle, asked: Asked) -> Bundle:
    """Return a copy of the models with one shape changed. Raise NoEdit where that change cannot be
    made.
    """
    return bundle.with_duration(asked.changed(bundle.duration))


def candidate(bundle: Bundle, asked: Asked, by: str, on: date) -> Bundle:
    """Return a copy of the models with one shape changed, and with a note in their metadata of who
    changed it and why. Raise NoEdit where that change cannot be made.
    """
    made = with_shape(bundle, asked)
    about = {**(bundle.metadata.get("duration") or {})}
    before = about.pop("edits", None) or {"version": 1, "model": "duration", "edits": []}
    about.pop("before_after", None)  # of other edits, on days that are not here
    entries = [{**entry, "on": str(on)} for entry in asked.entries(by, on)]
    edits = {**before, "edits": [*before["edits"], *entries]}
    about |= {
        "edits": edits,
        "edits_digest": hashlib.sha256(repr(edits).encode()).hexdigest(),
        "edited_terms": [
            name
            for name, term in zip(made.duration.term_names, made.duration.terms, strict=True)
            if term.origin == "edited"
        ],
    }
    return made.with_duration(made.duration, {"duration": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a shape that can be dragged.

    Attributes:
        start, to: its ends, as in an edit; "": no end.
        text: the part in words.
        score: its score as it is. now: its score where it is dragged to.
        factor: factor on the estimate where it is dragged to, in words.
    """

    start: str
    to: str
    text: str
    score: str
    now: str
    factor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A shape as parts that can be dragged between the scores `low` and `high`."""

    parts: tuple[Part, ...] = ()
    low: str = ""
    high: str = ""

    def points(self, now: Sequence[str]) -> str:
        """Return the parts that were moved, in the form of `Asked.points`. `now`: the present score
        of each part.
        """
        return ";".join(
            f"{part.start}:{part.to}:{score}"
            for part, score in zip(self.parts, now, strict=False)
            if score != part.score
        )


def drawing(model: AdditiveModel, asked: Asked) -> Drawing:
    """Return the shape function of the chosen feature as parts that can be dragged. Return no parts
    if the feature is not continuous. With more than `MOST_PARTS` parts, the most similar neighbours
    are joined.
    """
    place, term, axis = editable(model).get(asked.feature, (None, None, None))
    if place is None or term is None or axis is None:
        return Drawing()
    groups = [[k] for k in term.seen()]
    while len(groups) > MOST_PARTS:
        means = [float(term.scores[group].mean()) for group in groups]
        nearest = int(np.argmin(np.abs(np.diff(means))))
        groups[nearest : nearest + 2] = [groups[nearest] + groups[nearest + 1]]
    now = term.scores
    if asked.kind == "draw":
        with suppress(NoEdit):
            now = asked.changed(model).terms[place].scores
    ends = ["", *(repr(cut) for cut in axis.cuts), ""]
    both = [[f"{float(of[group].mean()):.2f}" for group in groups] for of in (term.scores, now)]
    values = [float(score) for scores in both for score in scores]
    return Drawing(
        parts=tuple(
            Part(
                start=ends[group[0] - 1],
                to=ends[group[-1]],
                text=span(axis, group),
                score=score,
                now=moved,
                factor=factor_text(float(moved)),
            )
            for group, score, moved in zip(groups, *both, strict=True)
        ),
        low=f"{max(-MOST_SCORE, min(values) - ROOM):.2f}",
        high=f"{min(MOST_SCORE, max(values) + ROOM):.2f}",
    )


def isotonic(values: Floats, weights: Floats, direction: int) -> Floats:
    """Return the nearest monotone sequence to `values` by weighted least squares (pool adjacent
    violators). `direction`: 1: rising, -1: falling.
    """
    blocks: list[tuple[float, float, int]] = []
    weigh = np.maximum(weights, 1e-9).tolist()
    for value, weight in zip((direction * values).tolist(), weigh, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, heavy, count = blocks.pop()
            total = heavy + block[1]
            block = ((mean * heavy + block[0] * block[1]) / total, total, count + block[2])
        blocks.append(block)
    return direction * np.repeat([b[0] for b in blocks], [b[2] for b in blocks])


def groups_of(
    model: AdditiveModel, rows: Sequence[Sequence[Value]], errors: Floats
) -> Sequence[Group]:
    """Return the mean errors of two models over all rows, and over groups by the number of GPUs.
    `errors`: an array of shape (2, rows), with the errors before and after a change.
    """
    names = [spec.name for spec in model.features]
    all_of = np.ones(len(rows), dtype=bool)
    found = [("all jobs", all_of)]
    if "gpus" in names:
        gpus = np.array([float(row[names.index("gpus")] or math.nan) for row in rows])
        least = 0
        for most in (*GPUS_UP_TO, math.inf):
            text = f"over {least} GPUs" if most == math.inf else f"{least + 1} to {most} GPUs"
            found.append(("1 GPU" if most == 1 else text, (gpus > least) & (gpus <= most)))
            least = int(min(most, 1e9))
    return [
        Group(
            of=text,
            jobs=int(mine.sum()),
            before=float(errors[0, mine].mean()),
            after=float(errors[1, mine].mean()),
        )
        for text, mine in found
        if mine.any()
    ]


def row_of(model: AdditiveModel, inputs: Sequence[str]) -> list[Value]:
    """Return the stored inputs of a score in the form that the model takes."""
    return [
        (float(text) if text else math.nan) if spec.kind == "continuous" else text or None
        for spec, text in zip(model.features, inputs, strict=False)
    ]


def _within(axis: Axis, start: float | None, to: float | None) -> NDArray[np.bool_]:
    """Return which bins of an axis overlap the region from `start` to before `to`, as an array of
    truth values; None: no end. The bin of missing values is never in it.
    """
    low, high = np.array([-math.inf, *axis.cuts]), np.array([*axis.cuts, math.inf])
    inside = (high > (-math.inf if start is None else start)) & (
        low < (math.inf if to is None else to)
    )
    return np.concatenate([[False], inside])


def _region(low: str, high: str, score: str) -> tuple[float | None, float | None, float]:
    start = None if not low else _number(low, "from", math.inf)
    to = None if not high else _number(high, "to", math.inf)
    if start is not None and to is not None and start >= to:
        raise NoEdit("From is not below to.")
    return start, to, _number(score, "score")


def _number(text: str, name: str, most: float = MOST_SCORE) -> float:
    try:
        value = float(text)
    except ValueError:
        raise NoEdit(f"{name.capitalize()}: a number is needed.") from None
    if not math.isfinite(value) or abs(value) > most:
        raise NoEdit(f"{name.capitalize()}: a number of at most {most:g} is needed.")
    return value
