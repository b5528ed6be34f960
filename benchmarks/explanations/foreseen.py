"""Checks of what an answer promises, predicts and forecasts; `sentences` calls them. Each check
returns the error in words, or "".
"""

from __future__ import annotations

import math
import re
from datetime import datetime

from benchmarks.explanations.asked import Asked, Told, near, times
from scheduler.core.findings import Promise


def promise(a: Asked) -> str:
    """Check when the answer says that GPUs will be reserved for the job, against the policy's own
    promise. Return the error in words, or "".
    """
    core, told, text = a.core, a.analysis["bound_s"], a.analysis["promise"]
    queued = core.jobs[a.job_id]
    made = core.policy.promise(queued, a.analysis["at"])
    if made is None or told is None:
        return (
            "" if made is None and told is None and not text else f"promised {told}, truly {made}"
        )
    if abs(told - made.left_s) > 1.0:
        return f"GPUs are kept in {told:.0f} s, truly {made.left_s:.0f}"
    kept = core.policy.reservation(queued.job.vc)
    own = kept is not None and kept[0] == a.job_id
    if own != ("kept for it, " in text):
        return f"{text!r}: {'it is' if own else 'nothing is'} kept"
    return "" if own else _promise_words(text, made)


def _promise_words(text: str, made: Promise) -> str:
    when = r"kept for it (?:in (.+?)|as .+?) ?(?:at the latest )?\((?:not )?(.+?) after"
    found = re.search(when, text)
    true = [made.left_s, made.bound_s]
    if found is None:
        return f"no times in {text!r}"
    said = [times(found[1])[0] if found[1] else made.left_s, times(found[2])[0]]
    if not all(near(s, t) for s, t in zip(said, true, strict=True)):
        return f"{text!r}, truly {true}"
    for word in ("later if more is asked for", "still waits for the jobs that run"):
        if word not in text:
            return f"without its condition: {text!r}"
    times_of = re.search(r"longer: jobs ask for ([\d.]+) times the GPUs it may run on", text)
    asked = made.demand if made.demand > 1 else None
    if (times_of is None) != (asked is None):
        return f"{text!r}: {made.demand:.2f} times its GPUs are asked for"
    if times_of and asked and abs(float(times_of[1]) - asked) > 0.06:
        return f"{text!r}: {asked:.2f} times its GPUs are asked for"
    return ""


def sharing(a: Asked) -> str:
    """Check the stated reason why the job does not share GPUs with a running job: for the run that
    came closest, compare it with the predicted speeds. Return the error in words, or "".
    """
    text = a.analysis["sharing"]
    queued = a.core.jobs[a.job_id]
    found = a.core.policy.findings(queued).partner
    if found is None or found.refused is None or found.job_id not in a.core.cluster.runs:
        return f"{text!r}: nothing was considered" if text else ""
    said = [int(n) for n in re.findall(r"(\d+)%", text)]
    speeds = found.speeds if found.refused == "InterferenceGuard" else None
    true = [round(100 * speed) for speed in speeds or ()]
    return "" if text and said == true else f"{text!r}, predicted {true}"


def belief(a: Asked) -> str:
    """Check how long the answer expects the job to run, in values and words, against the record of
    the last decision and the job's time limit. Return the error in words, or "".
    """
    told, spread = a.told["belief"], a.moment.evidence(a.job_id)
    if told is None or not spread:
        return f"belief {told}, recorded {dict(spread)}"
    limit = a.moment.asked[a.job_id]["time_limit_s"] or math.inf
    true = [min(limit, max(0.0, spread[name])) for name in ("p50_s", "p90_s")]
    said = [told["p50_s"], told["p90_s"]]
    if any(abs(s - t) > 1e-6 * t + 1e-6 for s, t in zip(said, true, strict=True)):
        return f"belief {said}, recorded {true}"
    found = re.match(r"It should run about (.+?); at most (.+?) nine times in ten", told["text"])
    words = [times(text)[0] for text in found.groups()] if found else []
    ok = len(words) == 2 and all(near(s, t) for s, t in zip(words, true, strict=True))
    return "" if ok else f"{told['text']!r}, recorded {true}"


def evidence(a: Asked) -> str:
    """Check how long, by the answer, the owner's last jobs of that name ran. Return the error in
    words, or "".
    """
    own = a.moment.asked[a.job_id]
    ended = []
    for job_id, (at, how) in a.moment.left.items():
        asked = a.moment.asked[job_id]
        alike = (asked["owner"], asked["name"]) == (own["owner"], own["name"])
        began = [r["at"] for r in a.moment.by_job.get(job_id, ()) if r["body"]["action"] in _GIVEN]
        if alike and began and how not in ("lost", "refuse"):
            ended.append((at, at - began[-1]))
    last = sorted(seconds for _, seconds in sorted(ended)[-12:])
    text = (a.told["belief"] or {}).get("evidence", "")
    if not last or not text:
        return "" if bool(last) == bool(text) else f"{text!r}, truly {last}"
    count = int((re.findall(r"last (\d+) jobs", text) or ["1"])[0])
    said = times(text)
    true = [last[0], last[-1]] if len(said) > 1 else [last[0]]
    ok = count == len(last) and all(near(s, t) for s, t in zip(said, true, strict=True))
    if not ok or text not in a.told["belief"]["text"]:
        return f"{text!r}, truly {len(last)}: {true}"
    return ""


_GIVEN = ("start", "pack", "profile")


def prediction(a: Asked) -> str:
    """Check that the terms of the predicted duration sum to the recorded score, and that the words
    give each term's factor rightly. Return the error in words, or "".
    """
    score = a.moment.last(a.job_id, "score")
    told = a.told["contributions"]
    if score is None:
        return "terms of no score" if told else ""
    total = score["intercept"] + sum(one["log_seconds"] for one in told)
    if abs(total - score["value"]) > 1e-6 or abs(math.expm1(total) - a.told["estimate_s"]) > 1.0:
        return f"terms sum to {total:.4f}, recorded {score['value']:.4f}"
    for one in told:
        if abs(one["factor"] - math.exp(one["log_seconds"])) > 1e-6 * one["factor"]:
            return f"{one['term']}: factor {one['factor']}, adds {one['log_seconds']}"
    product = math.prod(one["factor"] for one in a.told["prediction"])
    if abs(product / math.prod(one["factor"] for one in told) - 1) > 1e-6:
        return f"reasons multiply to {product}"
    text = a.told["belief"]["text"]
    if not a.told["prediction"]:  # nothing is known but what every job starts at
        alone = near(times(text)[0], math.expm1(score["intercept"]))
        return "" if alone else f"{text!r}, truly {math.expm1(score['intercept']):.0f} s"
    said = [
        float(n) for n in re.findall(r"×(\d+(?:\.\d+)?) \(", text.split("as for every job")[-1])
    ]
    shown = [one["factor"] for one in a.told["prediction"][: len(said)]]
    base = re.search(r": ([^:]+?) as for every job, then ", text)
    if base is None or not near(times(base[1])[0], math.expm1(score["intercept"])):
        return f"{text!r}: every job begins with {math.expm1(score['intercept']):.0f} s"
    if len(said) <= 4 and any(
        abs(s - t) > 0.006 + 0.02 * t for s, t in zip(said, shown, strict=True)
    ):
        return f"{text!r}, truly {shown}"
    return ""


def forecast(a: Asked) -> str:
    """Check the forecast of the job's start: not in the past, p50 before p90, equal to the stored
    forecast, and the same in words. Return the error in words, or "".
    """
    made = a.told["forecast"]
    if made is None or made["start_p50"] is None:
        return "" if "start is unknown" in a.lines else "no forecast, and nothing is said"
    p50, p90 = made["start_p50"], made["start_p90"] or math.inf
    if made["made_at"] > a.answered_at + 1.0 or p50 < made["made_at"] - 1.0 or p90 < p50:
        return f"foreseen at {made['made_at']:.0f}: {p50:.0f}, {p90:.0f}"
    if p90 < a.asked_at - 60.0:
        return f"starts {a.asked_at - p90:.0f} s ago at the latest"
    at = [datetime.fromtimestamp(t).strftime("%H:%M") for t in (p50, p90) if t < math.inf]
    first = next((line for line in a.lines.splitlines() if " starts about " in line), "")
    return "" if all(one in first for one in at) else f"{first!r}, truly {at}"


def after_end(a: Asked) -> str:
    """Check that the median forecast of the start is not before the end of a run that must end
    first. For the first job in line it must be that end, unless the forecast is a crude one. Return
    the error in words, or "".
    """
    made, holders = a.told["forecast"], a.analysis["holders"]
    if made is None or made["start_p50"] is None:
        return ""
    if len(holders) != 1 or holders[0]["kind"] != "running job":
        return ""
    if not _must_end(a, a.moment.asked[a.job_id]):
        return ""
    end_s, start_s = holders[0]["ends_in_s"], made["start_p50"] - a.analysis["at"]
    alone = a.analysis["waiting"] == 1 and made.get("estimate") != "crude"
    if start_s >= 0.8 * end_s - 30.0 and not (alone and start_s > 1.5 * end_s + 60.0):
        return ""
    return f"starts in {start_s:.0f} s, what must end before in {end_s:.0f}"


def sooner(a: Asked) -> str:
    """Check, for each suggested change, how much earlier the job would start. The value and the
    sentence must equal the difference of the two starts. The new start must not come before the end
    of a run whose GPUs the job needs. Return the error in words, or "".
    """
    for one in a.analysis["suggestions"]:
        found = re.search(rf"{re.escape(one['words'])}, (at once|.+? earlier)", a.lines)
        if found is None or (found[1] == "at once") != one["starts_now"]:
            return f"{one['words']}: {found and found[1]!r}, at once {one['starts_now']}"
        if one["starts_now"]:
            continue
        was, then, gain_s = one["now"]["start_p50"], one["then"]["start_p50"], one["gain_s"]
        if abs(was - then - gain_s) > 1.0 or not near(times(found[1])[0], gain_s):
            return f"{found[0]!r}, {gain_s:.0f} s between {was:.0f} and {then:.0f}"
        asked, start_s = a.moment.asked[a.job_id] | dict(one["changes"]), then - a.analysis["at"]
        for run in _must_end(a, asked) if not one["changes"].keys() & {"share", "profile"} else ():
            if start_s < 0.8 * run["ends_in_s"] - 30.0:
                return f"{found[0]!r}, what must end before in {run['ends_in_s']:.0f} s"
    return ""


def _must_end(a: Asked, asked: Told) -> list[Told]:
    """Return those of the runs named in the answer that must end before the job can start: without
    their GPUs, the open nodes of virtual cluster `asked["vc"]` have too few.
    """
    open_nodes = [n for n in a.moment.pool(asked["vc"]) if n not in a.moment.closed]
    spare = len(open_nodes) * a.moment.per_node - asked["gpus"]
    found = []
    for one in a.analysis["holders"]:
        run = a.moment.runs.get(one["job"])
        if run is not None and not run.profiling:
            held = sum(m.bit_count() for n, m in run.gpus.items() if n in open_nodes)
            found += [one] * (held > spare)
    return found


def promised(a: Asked) -> str:
    """Check what the answer says was forecast at submission, against the log. Return the error in
    words, or "".
    """
    told, kept = a.told["promised"], a.moment.forecasts.get(a.job_id)
    if told is None or kept is None:
        return "" if told is None else "foreseen at submission, and not in the log"
    names = ("start_p50", "start_p90")
    wrong = [n for n in names if abs((told[n] or 0.0) - (kept.get(n) or 0.0)) > 1e-3]
    return f"{wrong} are not those of the log" if wrong else ""


def changed(a: Asked) -> str:
    """Check by how much the answer says that the forecast start has changed since submission.
    Return the error in words, or "".
    """
    text, short = a.analysis["changed"], a.analysis["changed_much"]
    kept, now = a.moment.forecasts.get(a.job_id), a.told["forecast"]
    if not text:
        return f"{short!r} alone" if short else ""
    if kept is None or now is None or kept.get("start_p50") is None or now["start_p50"] is None:
        return f"{text!r} of no forecast"
    by = now["start_p50"] - kept["start_p50"]
    said = times(text)
    way = "later" if by > 0 else "earlier"
    close = bool(said) and abs(said[0] - abs(by)) <= max(120.0, 0.1 * abs(by))
    return "" if close and f" {way} than foreseen" in text else f"{text!r}, truly {by:+.0f} s"
