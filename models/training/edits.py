"""Manual corrections (edits) of a fitted model: they are read from a versioned file and applied
when the model is exported.

    version: 1
    model: duration
    edits:
      - feature: like_user            # clip: hold a shape function between two scores
        clip: {low: -0.5, high: 0.5}
        why: users with few jobs are not that different
      - feature: cpus                 # fix: say what a region contributes
        fix: {from: 64, to: null, score: 0.2}
        why: whole nodes are asked for by a template
      - feature: user_submitted_1h    # smooth: mean with the neighbouring bins, so many times
        smooth: {rounds: 2}
        why: few jobs come in long bursts
      - feature: gpus                 # monotone: +1 never falls, -1 never rises
        monotone: 1
        why: more GPUs never make a job of this site shorter
      - feature: like_error
        drop: true                    # a main effect (`feature`) or a pair (`term`)
        why: nobody could explain it

`by: NAME` and `on: 2026-03-01` say of an edit who made it and when; explanations repeat them.

Edits are made in the order written. The average contribution of a dropped term is added to the
intercept. A smoothed or clipped shape is not centred again, so it has exactly the scores that the
edit asks for. Every term that an edit changed has origin "edited", in the bundle and in
explanations.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from features.given import read_text
from features.spec import FeatureSpec
from models.bundle import AdditiveModel, Axis, Bundle, BundleError, Term
from models.training.errors import TrainingError
from models.training.metrics import TITLES
from models.training.monotone import monotonise
from models.training.settled import least_steps

Floats = NDArray[np.float64]

MAX_SCORE = 20.0  # no contribution of a feature means a factor of e^20


class EditError(TrainingError):
    """Raised for an edits file that cannot be read, or an edit that is refused. The message is one
    line for the user."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _Clip(_Strict):
    low: float = Field(ge=-MAX_SCORE, le=MAX_SCORE)
    high: float = Field(ge=-MAX_SCORE, le=MAX_SCORE)

    @model_validator(mode="after")
    def _ordered(self) -> _Clip:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        return self


class _Fix(_Strict):
    score: float = Field(ge=-MAX_SCORE, le=MAX_SCORE)
    start: float | None = Field(default=None, alias="from")
    to: float | None = None
    categories: list[str] | None = None

    @model_validator(mode="after")
    def _one_region(self) -> _Fix:
        if self.categories is not None and (self.start is not None or self.to is not None):
            raise ValueError("a region is given by from and to, or by categories, not by both")
        if self.start is not None and self.to is not None and self.start >= self.to:
            raise ValueError(f"from {self.start:g} is not below to {self.to:g}")
        return self


class _Smooth(_Strict):
    rounds: int = Field(ge=1, le=50)


class Edit(_Strict):
    """One manual correction of a model: the feature or pair of features, exactly one change, the
    reason, the author and the date.
    """

    feature: str | None = None
    term: list[str] | None = Field(default=None, min_length=2, max_length=2)
    why: str = Field(min_length=1)
    by: str | None = None
    on: date | None = None
    clip: _Clip | None = None
    fix: _Fix | None = None
    smooth: _Smooth | None = None
    monotone: Literal[-1, 1] | None = None
    drop: Literal[True] | None = None

    @model_validator(mode="after")
    def _one_of_each(self) -> Edit:
        if (self.feature is None) == (self.term is None):
            raise ValueError("give either feature or term")
        given = [n for n in CHANGES if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of {', '.join(CHANGES)}")
        if self.term is not None and given != ["drop"]:
            raise ValueError("a pair can only be dropped")
        return self

    @property
    def change(self) -> str:
        """Return the kind of change that this edit makes, one of `CHANGES`."""
        return next(name for name in CHANGES if getattr(self, name) is not None)


CHANGES = ("clip", "fix", "smooth", "monotone", "drop")


class Edits(_Strict):
    """The content of an edits file."""

    version: Literal[1]
    model: Literal["duration"] = "duration"
    edits: list[Edit] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Edited:
    """A model after its edits were made.

    Attributes:
        model: the edited model.
        table: name of a figure -> (before, after the edits), on the validation rows.
        metadata: the edits as read, their digest and the table; plain JSON for the bundle.
    """

    model: AdditiveModel
    table: Mapping[str, tuple[float, float]]
    metadata: Mapping[str, Any]


def read_edits(path: str | Path) -> Edits:
    """Return the edits in a file. Raises EditError that names the field, its value and what is
    accepted, or why the file cannot be read.
    """
    path = Path(path)
    try:
        text = yaml.safe_load(read_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise EditError(f"{path.name}: {getattr(error, 'strerror', None) or 'not text'}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise EditError(f"{path.name}: not YAML ({str(error).splitlines()[0]})") from None
    try:
        return Edits.model_validate(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        value = repr(first["input"]).splitlines()[0][:60]
        message = first["msg"].removeprefix("Value error, ").splitlines()[0]
        raise EditError(f"{path.name}: {where} is {value}: {message}") from None


def check_names(edits: Edits, features: Sequence[FeatureSpec]) -> None:
    """Raise EditError, with the nearest names, when an edit names a feature that does not exist."""
    names = [spec.name for spec in features]
    for number, edit in enumerate(edits.edits, 1):
        try:
            _known(edit, names)
        except EditError as error:
            raise EditError(f"edit {number} ({_about(edit)}): {error}") from None


def apply_edits(
    model: AdditiveModel,
    edits: Edits,
    *,
    measure: Callable[[AdditiveModel], Mapping[str, float]] | None = None,
    guard: str | None = None,
    tolerance: float = 0.02,
) -> Edited:
    """Return the edited model. `model` itself is not changed.

    Args:
        model: the fitted model.
        edits: see `read_edits`.
        measure: function that returns figures of a model on the validation days, for the table of
            before and after.
        guard: name of the figure (higher is better) that may not fall by more than `tolerance`.

    Raises EditError, with the reason, if an edit names a term that is not in the model, if the
    result is not monotone where a feature must be or breaks a rule of the bundle, or if the guard
    falls too far.
    """
    current = model
    for number, edit in enumerate(edits.edits, 1):
        try:
            current = _CHANGES[edit.change](current, edit)
        except (EditError, BundleError) as error:
            raise EditError(f"edit {number} ({_about(edit)}): {error}") from None
    _keep_promises(current)
    before = dict(measure(model)) if measure else {}
    after = dict(measure(current)) if measure else {}
    table = {name: (before[name], after[name]) for name in before}
    if guard is not None:
        if guard not in table:
            raise EditError(f"guard {guard!r} is not among {', '.join(table) or 'no figures'}")
        was, now = table[guard]
        if not now >= was - tolerance:
            raise EditError(
                f"refused: {guard} falls from {was:.4f} to {now:.4f}, "
                f"more than the {tolerance:g} allowed"
            )
    written = edits.model_dump(mode="json", by_alias=True, exclude_none=True)
    metadata = {
        "edits": written,
        "edits_digest": hashlib.sha256(repr(written).encode()).hexdigest(),
        "before_after": {k: list(v) for k, v in table.items()},
        "edited_terms": [
            name
            for name, term in zip(current.term_names, current.terms, strict=True)
            if term.origin == "edited"
        ],
        "dropped_terms": [n for n in model.term_names if n not in current.term_names],
    }
    return Edited(current, table, metadata)


def measured(bundle: Bundle) -> dict[str, dict[str, float]]:
    """Return the errors of a bundle's duration model on days after its training, without and with
    its edits: {"without_edits": figures, "with_edits": figures}.

    The figures are those of `duration_metrics`. Return {} if the model has no edits.
    """
    table = bundle.metadata["duration"].get("before_after", {})
    errors = {name: both for name, both in table.items() if name in TITLES}
    if not errors:
        return {}
    return {
        one: {k: math.nan if both[i] is None else both[i] for k, both in errors.items()}
        for i, one in enumerate(("without_edits", "with_edits"))
    }


def _about(edit: Edit) -> str:
    return f"{edit.change} {edit.feature or ' & '.join(edit.term or [])}"


def _find(model: AdditiveModel, edit: Edit) -> int:
    """Return the position of the edit's term among the model's. Raises EditError if there is
    none.
    """
    names = [spec.name for spec in model.features]
    key = {names.index(name) for name in _known(edit, names)}
    for k, term in enumerate(model.terms):
        if set(term.features) == key:
            return k
    wanted = " & ".join(names[i] for i in sorted(key))
    raise EditError(f"the model has no term {wanted}{_nearest(wanted, model.term_names)}")


def _known(edit: Edit, names: Sequence[str]) -> list[str]:
    """Return the names of the features that the edit changes. Raises EditError if one is not among
    `names`."""
    wanted = [edit.feature] if edit.feature is not None else list(edit.term or [])
    for name in wanted:
        if name not in names:
            raise EditError(f"feature {name!r} is not in the model{_nearest(name, names)}")
    return wanted


def _nearest(wanted: str, names: Sequence[str]) -> str:
    near = get_close_matches(wanted, names, cutoff=0.3)
    return f"; nearest: {', '.join(near)} (all: data/report.html, or /models)" if near else ""


def _with(model: AdditiveModel, k: int, scores: Floats | None) -> AdditiveModel:
    """Return the model with the scores of term `k` replaced. With `scores` None, the term is
    dropped and its mean added to the intercept."""
    old = model.terms[k]
    weights = old.weights / max(float(old.weights.sum()), 1.0)
    moved = 0.0
    terms = list(model.terms)
    if scores is None:
        moved = float((old.scores * weights).sum())
        del terms[k]
    else:
        terms[k] = replace(old, scores=scores, origin="edited")
    return AdditiveModel(model.axes, terms, model.intercept + moved, model.link)


def _main(model: AdditiveModel, edit: Edit) -> tuple[int, Term, Axis]:
    k = _find(model, edit)
    term = model.terms[k]
    return k, term, model.axes[term.features[0]]


def _clip(model: AdditiveModel, edit: Edit) -> AdditiveModel:
    k, term, _ = _main(model, edit)
    assert edit.clip is not None
    return _with(model, k, np.clip(term.scores, edit.clip.low, edit.clip.high))


def _fix(model: AdditiveModel, edit: Edit) -> AdditiveModel:
    k, term, axis = _main(model, edit)
    fix = edit.fix
    assert fix is not None
    if axis.spec.kind == "nominal":
        if fix.categories is None:
            raise EditError(f"feature {axis.spec.name!r} is nominal: give categories")
        unknown = [name for name in fix.categories if name not in axis.categories]
        if unknown:
            raise EditError(f"{unknown[0]!r} is not a category of {axis.spec.name!r}")
        where = np.isin(
            np.arange(axis.size) - 1, [axis.categories.index(c) for c in fix.categories]
        )
    else:
        if fix.categories is not None:
            raise EditError(f"feature {axis.spec.name!r} is continuous: give from and to")
        where = _bins_within(axis, fix.start, fix.to)
    return _with(model, k, np.where(where, fix.score, term.scores))


def _bins_within(axis: Axis, start: float | None, stop: float | None) -> NDArray[np.bool_]:
    """Return a mask of an axis's bins that overlap [start, stop); None: no bound. The bin of
    missing values never does."""
    low = np.array([-math.inf, *axis.cuts])
    high = np.array([*axis.cuts, math.inf])
    inside = (high > (-math.inf if start is None else start)) & (
        low < (math.inf if stop is None else stop)
    )
    return np.concatenate([[False], inside])


def _smooth(model: AdditiveModel, edit: Edit) -> AdditiveModel:
    k, term, axis = _main(model, edit)
    if axis.spec.kind == "nominal":
        raise EditError(f"feature {axis.spec.name!r} is nominal: its categories have no neighbours")
    assert edit.smooth is not None
    scores = term.scores.copy()
    weights = np.maximum(term.weights[1:], 1e-3)
    for _ in range(edit.smooth.rounds):
        line, w = np.pad(scores[1:], 1, mode="edge"), np.pad(weights, 1)
        scores[1:] = (line * w)[:-2] + 2 * (line * w)[1:-1] + (line * w)[2:]
        scores[1:] /= w[:-2] + 2 * w[1:-1] + w[2:]
    return _with(model, k, scores)


def _monotone(model: AdditiveModel, edit: Edit) -> AdditiveModel:
    _, term, axis = _main(model, edit)
    if axis.spec.kind == "nominal":
        raise EditError(f"feature {axis.spec.name!r} is nominal: its categories have no order")
    promised = axis.spec.monotone
    if promised and promised != edit.monotone:
        raise EditError(f"feature {axis.spec.name!r} promises {promised:+d}")
    assert edit.monotone is not None
    i = term.features[0]
    axes = list(model.axes)
    axes[i] = replace(axis, spec=replace(axis.spec, monotone=edit.monotone))
    return _flattened(AdditiveModel(axes, model.terms, model.intercept, model.link), (i,))


def _flattened(model: AdditiveModel, also: tuple[int, ...] = ()) -> AdditiveModel:
    """Return the model made monotone in every feature that must be (`FeatureSpec.monotone`). Terms
    that change, and the term with the features `also`, get origin "edited"."""
    scores = {t.features: t.scores for t in model.terms}
    directions = {
        i: axis.spec.monotone
        for i, axis in enumerate(model.axes)
        if axis.spec.monotone and (i,) in scores
    }
    flat, changed = monotonise(scores, {t.features: t.weights for t in model.terms}, directions)
    terms = [
        replace(t, scores=flat[t.features], origin="edited")
        if t.features in changed or t.features == also
        else t
        for t in model.terms
    ]
    return AdditiveModel(model.axes, terms, model.intercept, model.link)


def _drop(model: AdditiveModel, edit: Edit) -> AdditiveModel:
    k = _find(model, edit)
    features = model.terms[k].features
    if len(features) == 1 and model.axes[features[0]].spec.monotone:
        pairs = [t for t in model.terms if len(t.features) == 2 and features[0] in t.features]
        if pairs:
            raise EditError("its main effect carries a promise its pairs rest on: drop those first")
    dropped = _with(model, k, None)
    # a pair may have held up its share of a promise
    promised = len(features) == 2 and any(model.axes[i].spec.monotone for i in features)
    return _flattened(dropped) if promised else dropped


_CHANGES: dict[str, Callable[[AdditiveModel, Edit], AdditiveModel]] = {
    "clip": _clip,
    "fix": _fix,
    "smooth": _smooth,
    "monotone": _monotone,
    "drop": _drop,
}


def _keep_promises(model: AdditiveModel) -> None:
    """Raise EditError if the model's score is not monotone in a feature that must be
    (`FeatureSpec.monotone`)."""
    for i, axis in enumerate(model.axes):
        if not axis.spec.monotone:
            continue
        steps = least_steps(model.terms, i, axis.spec.monotone)
        if steps.size and steps.min() < -1e-9:
            at = int(steps.argmin())
            may = "fall" if axis.spec.monotone > 0 else "rise"
            raise EditError(
                f"refused: the score would {may} with {axis.spec.name!r} at {axis.cuts[at]:.6g}"
            )
