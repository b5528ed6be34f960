"""Measures how readable an answer is: its words, codes and raw feature names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from features.codec import decode
from features.state import FEATURES
from models.bundle import PACKING_FEATURES, PAIR_FEATURES
from pipeline.printed.why import lines_of
from scheduler.core.decisions import Reason
from scheduler.explain.answer import Analysis
from scheduler.explain.belief import alike_words
from scheduler.explain.explanation import Explanation
from scheduler.explain.render import Depth, first_words, says, waited_words

_COLUMNS = {*(spec.name for spec in FEATURES), *PACKING_FEATURES, *PAIR_FEATURES}
RAW_NAMES = sorted(name for name in _COLUMNS if "_" in name)
CODES = sorted(reason.value for reason in Reason if re.search("[a-z][A-Z]", reason.value))
_WORD = re.compile(r"[^\W_]+(?:[.,:'-][^\W_]+)*")


def found_in(text: str, names: Iterable[str]) -> list[str]:
    """Return which of the names occur in a text as whole words."""
    return [name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]


def rendered(told: Mapping[str, Any], job: Mapping[str, Any], now: float) -> str:
    """Return what `pellucid why` would print for an answer, without a service.

    Args:
        told: the answer's analysis.
        job: the job's other fields: job_id, submitted_at, eligible_at, estimate_s, forecast,
            suggestions.
    """
    explained = {
        "job_id": job["job_id"],
        "phase": "queued",
        "reason": told["reason"],
        "principal": [],
        "standing": {"position": told["position"], "waiting": told["waiting"]},
        "forecast": {"made_at": now, "end_p50": None, "end_p90": None, **job["forecast"]},
        "estimate_s": job["estimate_s"],
        "times": {
            "submitted_at": job["submitted_at"],
            "eligible_at": job["eligible_at"],
            "started_at": None,
            "ended_at": None,
        },
        "analysis": {**told, "suggestions": job["suggestions"]},
    }
    return "\n".join(lines_of(decode(Explanation, explained), now))


def with_words(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of the API with sentences added to the values of its analysis and of its
    predicted duration.
    """
    answer, found = dict(told), decode(Explanation, told)
    if answer.get("analysis"):
        answer["analysis"] = worded(answer["analysis"])
    if found.belief is not None:
        alike = found.belief.alike
        evidence = "" if alike is None else alike_words(alike)
        words = {"text": says(found)["belief"], "evidence": evidence}
        answer["belief"] = {**answer["belief"], **words}
    answer["dominant"] = first_words(found)
    if found.whole_wait is not None:
        answer["wait"] = {"text": waited_words(found, found.whole_wait)}
    return answer


def worded(analysis: Mapping[str, Any]) -> dict[str, Any]:
    """Return an analysis with sentences added to its values, made as the clients that show it make
    them.
    """
    found = decode(Analysis, analysis)
    bound_s = found.bound.left_s if found.bound else None
    much = says(found, depth=Depth.BRIEF)["changed"]
    return {**says(found), **analysis, "changed_much": much, "bound_s": bound_s}


def readable(texts: Sequence[str]) -> dict[str, Any]:
    """Return the number of words per answer, and the shares of answers that contain a reason code
    or a raw feature name.
    """
    if not texts:
        return {"words_p50": None, "codes": None, "raw_names": None}
    return {
        "words_p50": median(len(_WORD.findall(text)) for text in texts),
        "codes": sum(bool(found_in(text, CODES)) for text in texts) / len(texts),
        "raw_names": sum(bool(found_in(text, RAW_NAMES)) for text in texts) / len(texts),
    }
