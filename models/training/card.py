"""A bundle (exported models) described for people: its model card, its effects as data, and known
jobs similar to a given one."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from features.files import write_whole
from features.spec import Value
from features.survival import HISTORIES, History
from models.bundle import AdditiveModel, Axis, Bundle, Term
from models.training.bounds import SEEN
from models.training.plots import plot_histories

Floats = NDArray[np.float64]

# as the service's pages and the report look
STYLE = """:root{color-scheme:light dark;--bg:#fbfaf7;--card:#fff;--fg:#1d2127;--muted:#5d646e;
--line:#e0ded7;--accent:#0a6c74}@media(prefers-color-scheme:dark){:root{--bg:#14171b;--card:#1b1f25;
--fg:#e7e9ec;--muted:#a2aab5;--line:#31363e;--accent:#4fc3c7}}
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
background:var(--bg);color:var(--fg)}h1,h2,h3{line-height:1.2;letter-spacing:-.01em}
h2{border-top:1px solid var(--line);padding-top:.9rem}code{overflow-wrap:anywhere}
img{max-width:100%;background:#fff}figcaption,.note{color:var(--muted);font-size:.86rem}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;background:var(--card)}
th,td{border-bottom:1px solid var(--line);padding:.25rem .7rem;text-align:left;font-weight:400}
tr:first-child th{color:var(--muted)}td.n{text-align:right;font-variant-numeric:tabular-nums}"""

LIMITS = (
    "Trained on one site's history; on another it is a guess until it has been refitted there.",
    "The spread of a shape function is its firmness over refits, not a prediction interval.",
    "Effects describe what the model has learnt, not what causes a job to run longer.",
    "It knows jobs that ended before the window closed: new kinds of jobs meet the average.",
)

# metadata that has a section of its own
CORRECTED = "edits", "edits_digest", "before_after", "edited_terms", "dropped_terms", SEEN


def effects(model: AdditiveModel) -> list[dict[str, Any]]:
    """Return the model's shape functions (what each value of a feature adds to the score),
    purified, as plain JSON. The most important one comes first.

    Each has a name, its importance, its origin (see `Term`), the labels of the bins of each
    feature, scores, factors (exp of the scores, for a logarithmic model), the spread of the scores,
    and the number of training rows per bin.
    Neighbouring bins of a pair with the same scores are joined into one.
    """
    found = []
    for name, whole in zip(model.term_names, model.terms, strict=True):
        term, axes = whole, [model.axes[i] for i in whole.features]
        if len(axes) > 1:
            for place in range(len(axes)):
                term, axes[place] = _without_repeats(term, axes[place], place)
        entry: dict[str, Any] = {
            "name": name,
            "importance": whole.importance(),
            "origin": term.origin,
            "bins": [list(axis.labels()) for axis in axes],
            "scores": term.scores.tolist(),
            "spread": term.spread.tolist(),
            "rows": term.weights.tolist(),
        }
        if model.link == "log1p":
            entry["factors"] = np.exp(term.scores).tolist()
        found.append(entry)
    return sorted(found, key=lambda entry: -float(entry["importance"]))


def _without_repeats(term: Term, axis: Axis, place: int) -> tuple[Term, Axis]:
    """Return a term and its axis at a place without the cuts at which nothing changes."""
    if axis.spec.kind == "nominal" or len(axis.cuts) == 0:
        return term, axis
    both = np.stack([np.moveaxis(part, place, 0) for part in (term.scores, term.spread)], axis=1)
    differs = (both[1:] != both[:-1]).reshape(len(both) - 1, -1).any(axis=1)
    differs[0] = True  # the bin for missing values is by itself
    begins = np.concatenate([[0], 1 + np.flatnonzero(differs)])
    cuts = tuple(cut for cut, apart in zip(axis.cuts, differs[1:], strict=True) if apart)
    fewer = replace(
        term,
        scores=np.take(term.scores, begins, axis=place),
        weights=np.add.reduceat(term.weights, begins, axis=place),
        spread=np.take(term.spread, begins, axis=place),
    )
    return fewer, replace(axis, cuts=cuts)


def similar_rows(
    model: AdditiveModel, columns: Any, row: Sequence[Value], count: int = 5
) -> list[tuple[int, float]]:
    """Return the known rows that the model treats as most similar to `row` ("jobs like this one").

    Rows are similar if every term of the model contributes nearly the same, whatever the raw
    values. A feature that the model does not use makes no difference.

    Args:
        columns: n known rows, by feature name.
        row: feature values of the job, in the model's order.
        count: number of rows, at most.

    Returns (position, distance) pairs, nearest first. The distance is the root of the summed
    squared differences of terms, 0 for rows that the model cannot tell apart.
    """
    known = model.terms_batch(columns)
    here = np.array(model.explain(row).terms)
    distance = np.sqrt(np.square(known - here).sum(axis=1))
    nearest = np.argsort(distance, kind="stable")[: max(0, count)]
    return [(int(i), float(distance[i])) for i in nearest]


def model_card(
    bundle: Bundle,
    *,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    slices: Mapping[str, Mapping[str, Mapping[str, float]]] | None = None,
    limits: Sequence[str] = (),
    examples: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the card of a bundle as one self-contained HTML page.

    Args:
        metrics: model -> figure -> value, on days after those that the models were trained on.
        slices: property that jobs are grouped by ("GPUs") -> its value ("1") -> figure -> value.
        limits: further sentences about what the bundle must not be used for.
        examples: unseen jobs with the known jobs most like them, see `similar_rows`: kind, job_id,
            gpus, predicted_s, duration_s, and alike, a list of job_id, gpus, duration_s.
    """
    body = [
        f"<h1>Model card: bundle {escape(bundle.digest[:12])}</h1>",
        f"<p>Holds {escape(', '.join(bundle.parts)) or 'no model'}. "
        f"Made by {escape(bundle.created_by)}. sha256 <code>{bundle.digest}</code>.</p>",
    ]
    for part in bundle.parts:
        described = bundle.metadata.get(part)
        if isinstance(described, Mapping):
            body.append(f"<h2>{escape(part)}: data and settings</h2>" + _pairs(described))
    if metrics:
        body.append("<h2>Errors on days it did not see</h2>" + _grid("model", metrics))
    for name, figures in (slices or {}).items():
        body.append(f"<h2>By {escape(name)}</h2>" + _grid(name, figures))
    if examples:
        body.append("<h2>Jobs like this one</h2>" + "".join(map(_example, examples)))
    if "duration" in bundle.parts:
        seen = (bundle.metadata.get("duration") or {}).get(SEEN) or {}
        body.append("<h2>What the duration rests on</h2>" + _terms(bundle.duration, seen))
    body += _histories(bundle)
    edits = bundle.metadata.get("duration", {})
    if "edits" in edits:
        body.append("<h2>Corrections by a person</h2>" + _edits(edits))
    lines = [*LIMITS, *limits]
    if any(
        isinstance(m, Mapping) and m.get("origin") == "simulated" for m in bundle.metadata.values()
    ):
        lines.insert(0, "Pair speeds come from a formula, not from measurements on GPUs.")
    elif "pair_speed" in bundle.parts:
        mode = bundle.sharing or "a mode that is not known"
        lines.insert(0, f"Pair speeds were measured on GPUs that are shared by {mode}: no other.")
    body.append("<h2>Limits</h2><ul>" + "".join(f"<li>{escape(x)}</li>" for x in lines) + "</ul>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Model card</title>'
        f"<style>{STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def _example(example: Mapping[str, Any]) -> str:
    """Return HTML that shows one predicted job, and the known jobs that the model treats as
    similar.
    """
    columns = {
        str(job["job_id"]): {"GPUs": job["gpus"], "seconds": job["duration_s"]}
        for job in example["alike"]
    }
    sentence = (
        f"{example['kind']}: job {example['job_id']}, {example['gpus']} GPUs, predicted "
        f"{example['predicted_s']:,.0f} s, ran {example['duration_s']:,.0f} s"
    )
    return f"<h3>{escape(sentence)}</h3>" + _grid("known job", columns)


def _histories(bundle: Bundle) -> list[str]:
    """Return HTML of a chart of the histories that are stored in the bundle (how long jobs of a
    group ran); [] if it holds none."""
    known = [History.read(one) for one in bundle.metadata.get(HISTORIES, ())]
    if not known:
        return []
    with TemporaryDirectory() as scratch:
        drawn = plot_histories(known, Path(scratch, "histories.png")).read_bytes()
    named = escape("; ".join(one.of for one in known))
    return [
        "<h2>Histories: how long whose jobs lasted</h2><figure>"
        f'<img alt="{named}" src="data:image/png;base64,{b64encode(drawn).decode()}">'
        "<figcaption>Bars: jobs by how long they lasted, the older ones counting less. Line: the "
        "share of the next ones that outlives each moment; dotted: by the wider group."
        "</figcaption></figure>"
    ]


def write_card(path: str | Path, page: str) -> Path:
    """Write the HTML text `page` to the file `path`, atomically. Return the path."""
    path = Path(path)
    write_whole(path, page.encode("utf-8", "replace"))
    return path


def _number(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = ", ".join(f"{str(k).replace('_', ' ')} {_number(v)}" for k, v in value.items())
        return parts or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_number, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return "not defined" if value is None else escape(str(value))


def _pairs(described: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><th>{escape(str(key)).replace('_', ' ')}</th><td>{_number(value)}</td></tr>"
        for key, value in described.items()
        if key not in CORRECTED
    )
    return f"<table>{rows}</table>"


def _grid(corner: str, figures: Mapping[str, Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(name for row in figures.values() for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in (corner, *names))
    rows = "".join(
        f"<tr><th>{escape(str(label))}</th>"
        + "".join(f'<td class="n">{_number(row.get(name))}</td>' for name in names)
        + "</tr>"
        for label, row in figures.items()
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


def _terms(model: AdditiveModel, seen: Mapping[str, Sequence[float]]) -> str:
    rows = {
        entry["name"]: {
            "mean effect": entry["importance"],
            "lowest factor": float(np.exp(np.min(entry["scores"]))),
            "highest factor": float(np.exp(np.max(entry["scores"]))),
            "data from": _edge(seen, entry["name"], 0),
            "to": _edge(seen, entry["name"], 1),
            "origin": entry["origin"],
        }
        for entry in effects(model)
    }
    return _grid("term", rows)


def _edge(seen: Mapping[str, Sequence[float]], name: str, end: int) -> Any:
    """Return the least (`end` 0) or greatest (`end` 1) value that a feature had in training; "" if
    `name` is not a continuous feature in `seen`."""
    return seen[name][end] if name in seen else ""


def _edits(edits: Mapping[str, Any]) -> str:
    made = edits.get("edits", {}).get("edits", [])
    lines = "".join(
        f"<li><b>{escape(str(e.get('feature') or ' & '.join(e.get('term') or [])))}</b>: "
        + escape(", ".join(f"{k} {v}" for k, v in e.items() if k not in ("feature", "term", "why")))
        + f". {escape(str(e.get('why', '')))}</li>"
        for e in made
    )
    table = {
        name: dict(zip(("before", "after"), both, strict=True))
        for name, both in edits.get("before_after", {}).items()
    }
    return f"<ul>{lines}</ul>" + (_grid("figure", table) if table else "")
