"""Judges every kind of sentence of an answer, as a stranger would, against the log at the time of
the question. Each check returns what is wrong, or "".

An answer is what the API gave to somebody in another process, with what the command line printed
and its page showed. The log is read by `log.Log`; what only the core can say (what it promises, the
distribution it decides by) is asked of the core, and what would start is tried on it (`judge`).
Nothing of `scheduler.explain`, of the service or of what prints is imported: numbers in sentences
are read back from their words.

A check returns what is wrong, in words; "" where nothing is. Every check has its planted lies in
`tests/benchmarks/test_explanations.py`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from benchmarks.explanations.asked import Asked, Told, ints, near, times
from benchmarks.explanations.counted import counted
from benchmarks.explanations.foreseen import (
    after_end,
    belief,
    changed,
    evidence,
    forecast,
    prediction,
    promise,
    promised,
    sharing,
    sooner,
)
from benchmarks.explanations.judge import Account, Judge, TrialFailed, starts_when
from benchmarks.explanations.log import Log, Moment, later
from benchmarks.explanations.meanwhile import JUST_CAME, slack, spells, wait

FAR = 6.0  # an end that is told may be so many times off the lognormal through p10, p50 and p90
LATE_S = 3.0  # an answer older than this says so
START_S = 5.0  # between a decision to start a job, and its start
MOST_EVENTS = 200  # between a question and its answer, that are looked at


# --- where it stands -----------------------------------------------------------------------------


def phase(a: Asked) -> str:
    """Check that the job is said to wait, and for the right time. Time while profiled or held does
    not count. Return the error in words, or "".
    """
    asked, told = a.moment.asked[a.job_id], a.told
    if not a.moment.queued(a.job_id) or told["phase"] not in ("queued", "submitted"):
        return f"{told['phase']} of a job that waits"
    if abs(told["times"]["submitted_at"] - asked["submitted_at"]) > 1e-3:
        return "submitted at another time"
    if told["times"]["started_at"] or told["times"]["ended_at"]:
        return "started, or over"
    waited_s = told["waited_s"] or 0.0
    true = sum(until - since for _, since, until in spells(a))
    ok = near(waited_s, true) or abs(waited_s - true) <= slack(a)
    return "" if ok else f"told of {waited_s:.0f} s, waited {true:.0f} s"


def place(a: Asked) -> str:
    """Check the job's position in its queue: in the value and the sentence of the answer, and in
    the queue that the API lists. Return the error in words, or "".
    """
    line = a.moment.line(a.moment.asked[a.job_id]["vc"])
    true = [line.index(a.job_id) + 1, len(line)]
    said = ints(a.analysis["place"], r"Number ([\d,]+) of ([\d,]+) in ")
    standing = a.told["standing"] or {}
    listed = [
        [a.analysis["position"], a.analysis["waiting"]],
        said,
        [standing.get("position"), standing.get("waiting")],
    ]
    return "" if all(one == true for one in listed) else f"place {listed}, truly {true}"


def _true(a: Asked) -> list[int]:
    """Return three true numbers of GPUs: those that the job asks for, those free, and those of its
    virtual cluster.
    """
    asked = a.moment.asked[a.job_id]
    there = len(a.moment.pool(asked["vc"])) * a.moment.per_node
    return [asked["gpus"], a.moment.free(asked["vc"]), there]


def numbers(a: Asked) -> str:
    """Check the three numbers of GPUs in the answer: asked for, free, and of the virtual cluster.
    Each must be right in every value and sentence. Return the error in words, or "".
    """
    true = dict(zip(("need", "free", "limit"), _true(a), strict=True))
    first = a.told["principal"][0]
    for part in (a.analysis, first):
        wrong = {name: part[name] for name in true if part[name] != true[name]}
        if wrong:
            return f"{wrong}, truly {true}"
    said = ints(
        a.analysis["in_the_way"],
        r"needs ([\d,]+) GPUs?; ([\d,]+) of ([\d,]+) (?:is|are) free now",
    )
    if said != list(true.values()):
        return f"{a.analysis['in_the_way']!r}, truly {true}"
    told = ints(a.told["dominant"], r"needs ([\d,]+) GPUs?, ([\d,]+) of ([\d,]+)")
    return "" if told in (None, said) else f"{a.told['dominant']!r}, truly {true}"


def age(a: Asked) -> str:
    """Check that the answer is at most `LATE_S` older than the question, or says how old it is.
    Return the error in words, or "".
    """
    at = a.analysis["at"]
    if at > a.answered_at + 1.0:
        return "of a time to come"
    old = a.asked_at - at
    said = re.search(r"As of (.+?) ago \(what was submitted", a.lines)
    if old <= LATE_S or (said and near(times(said[1])[0], a.answered_at - at)):
        return ""
    return f"{old:.0f} s old, and {said[1] if said else 'nothing'} is said"


# --- what is in its way --------------------------------------------------------------------------


def _runs(a: Asked) -> list[Told]:
    return [one for one in a.analysis["holders"] if one["kind"] == "running job"]


def alive(a: Asked) -> str:
    """Check that running jobs named as in the way hold GPUs, that waiting jobs named wait, and that
    nodes named are closed. Return the error in words, or "".
    """
    for one in a.analysis["holders"]:
        job, kind = one["job"], one["kind"]
        holds = {
            "running job": job in a.moment.runs,
            "waiting job": a.moment.queued(job),
            "reservation": a.moment.queued(job),
            "closed node": one["node"] in a.moment.closed,
        }
        if not holds[kind]:
            return f"{kind} {job or one['node']} is none"
    return ""


def whole(a: Asked) -> str:
    """Check that the answer lists everything that is in the job's way. The sentence must give the
    same number, or the names. Return the error in words, or "".
    """
    told, text = a.analysis, a.analysis["in_the_way"]
    if told["in_all"] != len(told["holders"]) or not all(
        one["job"] or one["node"] is not None for one in told["holders"]
    ):
        return f"{told['in_all']} in all, {len(told['holders'])} listed"
    if not told["holders"]:
        even_then = told["still"] and "Even with nothing in its way" in text
        return "" if even_then else "nobody is in its way"
    by = Counter(one["kind"] for one in told["holders"])
    for kind, count in by.items():
        names = [one["job"] for one in told["holders"] if one["kind"] == kind and one["job"]]
        named = all(name in text for name in names)
        if not named and f"{count:,} {_WORD[kind]}s" not in text:
            return f"{count} of {kind} are not in {text!r}"
    others = set(re.findall(r"\b[a-z0-9]{12}\b", text)) - {one["job"] for one in told["holders"]}
    return f"{others} in words only" if others else ""


_WORD = {
    "running job": "running job",
    "waiting job": "waiting job",
    "reservation": "job that GPUs are kept for",
    "closed node": "closed node",
}


def ran(a: Asked) -> str:
    """Check, for each running job named, how long it has run and by how much it exceeds its
    predicted duration. Return the error in words, or "".
    """
    for one in _runs(a):
        true = a.analysis["at"] - a.moment.runs[one["job"]].since
        if abs(one["ran_s"] - true) > 0.1:
            return f"{one['job']} ran {one['ran_s']}, truly {true}"
        low_s, high_s = a.moment.predicted(one["job"]) or (math.inf, math.inf)
        past_s = one["past_s"] or 0.0
        if not max(0.0, true - high_s) - 1 <= past_s <= max(0.0, true - low_s) + 1:
            return f"{one['job']} is {past_s} past its prediction, truly {true - high_s}"
    return ""


def ends(a: Asked) -> str:
    """Check when each running job named should end. The value must respect its time limit and lie
    near the recorded prediction. The sentence must agree. Return the error in words, or "".
    """
    for one in _runs(a):
        job, left = one["job"], one["ends_in_s"]
        limit = a.moment.asked[job]["time_limit_s"] or math.inf
        if left is None or left < 0 or left > max(0.0, limit - one["ran_s"]) + 1.0:
            return f"{job} should end in {left}, within {limit - one['ran_s']}"
        true = _left(a.moment.evidence(job), one["ran_s"])
        if job in a.moment.stated:  # it says so itself
            true = max(0.0, sum(a.moment.stated[job][1:]) / 2 - one["ran_s"])
        if true is not None and not true / FAR - 60 <= left <= true * FAR + 60:
            return f"{job} should end in {left:.0f} s, by what is recorded {true:.0f}"
    if not _runs(a):
        return ""
    last = max(_runs(a), key=lambda one: one["ends_in_s"])
    text = r"(?:the last,? )?(past its prediction, )?should end in ([^,)]+)\)"
    found = re.search(text, a.analysis["in_the_way"])
    if found is None or not near((times(found[2]) or [-1.0])[0], last["ends_in_s"]):
        return f"{a.analysis['in_the_way']!r}, the last in {last['ends_in_s']:.0f} s"
    late = bool(found[1]) == bool(last["past_s"])
    return "" if late else f"late in {a.analysis['in_the_way']!r}, past {last['past_s']}"


def _left(spread: Mapping[str, float], ran_s: float) -> float | None:
    """Return the median seconds left of a run that has lasted `ran_s` seconds. The duration is
    taken as lognormal through the recorded percentiles. Return None without recorded percentiles.
    """
    if not spread:
        return None
    normal = NormalDist()
    low, middle, high = (math.log1p(max(0.0, spread[n])) for n in ("p10_s", "p50_s", "p90_s"))
    sigma = max(1e-3, (high - low) / (2 * normal.inv_cdf(0.9)))
    outlived = normal.cdf((math.log1p(ran_s) - middle) / sigma)
    if outlived > 0.99:  # beyond what is recorded: as long again
        return max(1.0, ran_s)
    return max(0.0, math.expm1(middle + sigma * normal.inv_cdf((1 + outlived) / 2)) - ran_s)


def tried(a: Asked) -> str:
    """Check that the job would start if everything named as in its way were gone. If nothing is
    named, check that it waits even without everything that could be in its way. Return the error in
    words, or "".
    """
    holders = a.analysis["holders"]
    judge = Judge(a.core, Account())
    gone = holders or judge.everything(a.job_id)
    if judge.starts_without(gone, a.job_id, a.analysis["at"]) == bool(holders):
        return ""
    return "what is named is not what it waits for"


def fewest(a: Asked) -> str:
    """Check that the job still waits if only one of the named obstacles stays. Return the error in
    words, or "".
    """
    holders, judge = a.analysis["holders"], Judge(a.core, Account())
    for i in range(len(holders) if len(holders) > 1 else 0):
        rest = [one for j, one in enumerate(holders) if j != i]
        if judge.starts_without(rest, a.job_id, a.analysis["at"]):
            return f"it starts with {holders[i]['job'] or holders[i]['node']} left"
    return ""


def otherwise(a: Asked) -> str:
    """Check that the job would also start without each named alternative set of obstacles. The
    sentence must give the number of alternatives. Return the error in words, or "".
    """
    told, judge = a.analysis, Judge(a.core, Account())
    besides = [one for one in told["holders"] if one["kind"] != "running job"]
    sets = [[one] for one in told["either"]] + [[*those, *besides] for those in told["instead"]]
    for gone in sets:
        if not judge.starts_without(gone, a.job_id, told["at"]):
            return f"without {[one['job'] or one['node'] for one in gone]} it does not start"
    text, ways = told["otherwise"], len(told["instead"])
    if told["alternatives"] != len(told["either"]):
        return f"{told['alternatives']} others, {len(told['either'])} listed"
    if not sets:
        return f"{text!r}: nothing is listed" if text else ""
    said = re.match(r"The end of (one|any of ([\d,]+)|[\d,-]+) other jobs? would do as well", text)
    if ways:
        return (
            ""
            if said and (ways == 1 or f"({ways} such groups)" in text)
            else f"{text!r}: {ways} ways"
        )
    jobs = 0 if not said else int(said[2].replace(",", "")) if said[2] else 1
    opened = re.search(r"Opening (?:one|any of ([\d,]+)) (?:other|closed) nodes? would", text)
    nodes = 0 if not opened else int(opened[1].replace(",", "")) if opened[1] else 1
    true = Counter(one["kind"] == "closed node" for one in told["either"])
    right = (jobs, nodes) == (true[False], true[True])
    return "" if right else f"{text!r}, truly {true[False]} jobs, {true[True]} nodes"


def helps(a: Asked) -> str:
    """Check each suggested change that should start the job at once, by making the change in a copy
    of the core. Return the error in words, or "".
    """
    for one in a.analysis["suggestions"]:
        changes, at = one["changes"], a.analysis["at"]
        if one["starts_now"] and not starts_when(a.core, changes, a.job_id, at):
            return f"{one['words']}: it does not start"
    return ""


# --- its order, and who went first ---------------------------------------------------------------


def order(a: Asked) -> str:
    """Check that the terms of the job's order value sum to the recorded value. Each must appear
    with its sign in the sentence, and the model's part must be one term. Return the error in words,
    or "".
    """
    terms = {one["what"]: one["seconds"] for one in a.analysis["order"]}
    key = a.moment.last(a.job_id, "priority")
    waited_s = a.analysis["at"] - a.moment.asked[a.job_id]["submitted_at"]
    credit_s = -terms.get("credit for waiting", 0.0)
    counts = credit_s > 0.0 or not waited_s  # else nobody knows whose it is, and no wait counts
    true = key - (a.moment.settings["ageing"] if counts else 0.0) * a.analysis["at"]
    if "submitted, of those past the bound" in terms:
        true = a.moment.asked[a.job_id]["submitted_at"] - a.analysis["at"]
    if abs(sum(terms.values()) - true) > 1e-4:
        return f"terms sum to {sum(terms.values()):.4f}, recorded {true:.4f}"
    predicted = a.moment.last(a.job_id, "estimate_s")
    # of a job with a curve: its mean, of which so much counts
    counts_s = float(a.moment.evidence(a.job_id).get("counts_s", predicted))
    models = next((terms[what] for what in terms if what.startswith("the model's duration")), None)
    bound = "submitted, of those past the bound" in terms
    if not bound and (models is None or abs(models - counts_s) > 1e-6 * counts_s + 1e-6):
        return f"the model says {models}, recorded {counts_s}"
    if wrong := counted(a.moment, a.job_id):
        return wrong
    alone = re.search(r"[Tt]he model predicts (.+?):", (a.told["belief"] or {}).get("text", ""))
    if alone and not near(times(alone[1])[0], predicted):
        return f"{alone[0]!r} beside {predicted:.1f} s in its place"
    for what, seconds in terms.items():
        ends = r"(?:, [a-z]|\.(?: |$))"
        found = re.search(rf"{re.escape(what)} ([+-])([\d., a-z]+?){ends}", _place_of(a))
        if not seconds:
            continue
        if found is None or (found[1] == "-") != (seconds < 0):
            return f"{what} {seconds:+.1f} in {_place_of(a)!r}"
        if not near(times(found[2])[0], abs(seconds)):
            return f"{what} {seconds:+.1f} in {_place_of(a)!r}"
    return ""


def _place_of(a: Asked) -> str:
    return str(a.analysis["place"])


def overtaken(a: Asked) -> str:
    """Check the number of jobs that were submitted later but got GPUs first, by reason, against the
    logged decisions. Return the error in words, or "".
    """
    return _overtaken(a.moment, a.job_id, a.told["overtaken"])


def _overtaken(moment: Moment, job_id: str, said: Told | None) -> str:
    by: Counter[str] = Counter()
    own = moment.by_job[job_id]
    began = next((r["seq"] for r in own if r["body"]["action"] in ("start", "pack")), math.inf)
    for other in later(moment, job_id):
        rows = moment.by_job.get(other, [])
        given = next((r for r in rows if r["body"]["action"] in ("start", "pack")), None)
        profiled = next((r for r in rows if r["body"]["action"] == "profile"), None)
        if given is None and (profiled is None or other not in moment.left):
            continue
        row = given or profiled
        assert row is not None
        if row["seq"] > began:
            continue
        before = [r for r in own if r["at"] <= row["at"] and r["body"].get("priority") is not None]
        key = before[-1]["body"]["priority"] if before else None
        by[_why(moment, job_id, row["body"], key)] += 1
    told = said or {"jobs": 0, "why": {}}
    if told["jobs"] != sum(by.values()) or Counter(told["why"]) != by:
        return f"overtaken {told['why']}, truly {dict(by)}"
    return ""


def _why(moment: Moment, job_id: str, body: Mapping[str, Any], own: float | None) -> str:
    if body["action"] == "pack":
        return "shared the GPUs of a running job"
    if body["action"] == "profile":
        return "ended during the short profiling run that new jobs get"
    reasons = {
        "Borrowed": "ran on idle GPUs of another virtual cluster",
        "Backfilled": "ran on GPUs kept for a job that could not start yet",
        "WaitedTooLong": "had GPUs kept after a long wait",
    }
    if body["reason"] in reasons:
        return reasons[body["reason"]]
    if own is not None and body.get("priority") is not None and body["priority"] < own:
        return "stood ahead of it in line"
    fewer = moment.asked[body["job_id"]]["gpus"] < moment.asked[job_id]["gpus"]
    return "asked for fewer GPUs" if fewer else "could start on GPUs that this job could not use"


def waits(a: Asked) -> str:
    """Check how long the job waited for each reason, in seconds and as a share of its wait, against
    the logged decisions. Return the error in words, or "".
    """
    by = defaultdict[str, float](float)
    for reason, since, until in spells(a):
        by[reason] += until - since
    total = sum(by.values())
    told = {one["reason"]: one for one in a.told["waits"]}
    for name, seconds in by.items():
        said = told.pop(name, {"seconds": 0.0, "share": 0.0})
        if abs(said["seconds"] - seconds) > slack(a):
            return f"waited {said['seconds']:.1f} s for {name}, truly {seconds:.1f}"
        if abs(said["share"] - seconds / max(total, 1e-9)) > 0.02 + slack(a) / max(total, 1.0):
            return f"{name} is {said['share']:.3f} of the wait, truly {seconds / total:.3f}"
    return f"waited for {list(told)}" if told else ""


def begun(a: Asked) -> str:
    """Check a job that has started: which jobs got GPUs before it while it waited, and how long it
    waited. Return the error in words, or "".
    """
    if a.begun is None:
        return ""
    told, moment = a.begun, a.moment
    job_id = told["job_id"]
    since = moment.asked[job_id]["submitted_at"]
    (given, *_) = (r for r in moment.by_job[job_id] if r["body"]["action"] in ("start", "pack"))
    profiled = sum(
        after["at"] - row["at"]
        for row, after in pairwise(moment.by_job[job_id])
        if row["body"]["action"] == "profile" and row["seq"] < given["seq"]
    )
    waited = given["at"] - since - profiled
    said = sum(one["seconds"] for one in told["waits"])
    if abs(said - waited) > START_S:
        return f"{job_id} waited {said:.1f} s, truly {waited:.1f} s"
    return _overtaken(moment, job_id, told["overtaken"])


# --- the same everywhere -------------------------------------------------------------------------


def lines(a: Asked) -> str:
    """Check that the command line prints every sentence of the API's answer. Return the error in
    words, or "".
    """
    parts = ("in_the_way", "place", "promise", "sharing", "otherwise", "changed")
    said = [a.analysis[name] for name in parts]
    said += [(a.told["belief"] or {}).get("text", ""), a.told["wait"]["text"]]
    return next((f"not printed: {text!r}" for text in said if text and text not in a.lines), "")


STABLE = ("job_id", "phase", "estimate_s", "contributions", "hold")


def printed(a: Asked) -> str:
    """Check that `--json` of the command line prints the values of the API's answer. Values that
    change with time are not compared here. Return the error in words, or "".
    """
    found = [name for name in STABLE if a.printed[name] != a.told[name]]
    found += ["belief"] * (_range(a.printed["belief"]) != _range(a.told["belief"]))
    return f"other on the command line: {found}" if found else ""


def _printed(check: Callable[[Asked], str]) -> Callable[[Asked], str]:
    return lambda a: check(replace(a, told=a.printed))


def _range(told: Told | None) -> str:
    """Return the range of the job's predicted duration, cut from the sentence on it. For a running
    job return "It has run", since its numbers change between two reads.
    """
    if str((told or {"text": ""})["text"]).startswith("It has run "):
        return "It has run"
    return str((told or {"text": ""})["text"]).partition(". ")[0].partition(" run ")[2]


def page(a: Asked) -> str:
    """Check that the job's page shows the same predicted duration as the API. Return the error in
    words, or "".
    """
    said = _range(a.told["belief"])
    return "" if said in a.page else f"not on the page: {said!r}"


def page_wait(a: Asked) -> str:
    """Check the parts of the job's wait on its page. The page is read between two answers of the
    API. It must show all parts that both have, and no part that neither has. Return the error in
    words, or "".
    """
    found, after = re.search(r"<p>(Job [^<]+)</p>", a.page), a.after or a.told
    by_api = (a.told["wait"]["text"], after["wait"]["text"])
    shown, *told = map(_made_of, (found[1] if found else "", *by_api))
    before, later = map(set, told)
    right = shown in told or before & later <= set(shown) <= before | later
    return "" if shown and right else f"on the page {shown}, by the API {told}"


def _made_of(text: str) -> list[str]:
    """Return the parts of a sentence on a job's wait: the job, its GPUs, the reasons, and whether
    it mentions jobs that had GPUs meanwhile or started first.
    """
    found = re.match(
        r"(Job \w+ \(.+?\) has waited) .+?: (.+?)\. (\d+) GPUs? for that long (?:is|are) ", text
    )
    if found is None:
        return [text] if text.endswith(JUST_CAME) else []
    reasons = re.findall(r"(?:^|, | and )([A-Za-z ]+?) \([\d.]+ % of", found[2])
    return [found[1], found[3], *sorted(reasons), *re.findall("Meanwhile|got GPUs first", text)]


def page_numbers(a: Asked) -> str:
    """Check how many GPUs are free on the job's page, in its first sentence and beside the bar.
    Return the error in words, or "".
    """
    why = a.page.partition('id="why"')[2].partition("</section>")[0]
    shown = ints(why, r"needs ([\d,]+) GPUs?.*?[,;] ([\d,]+) of ([\d,]+) (?:is|are) free")
    bar = ints(why, r"needs ([\d,]+), free ([\d,]+), in all ([\d,]+)")
    if shown is not None and bar != shown:
        return f"on the page {shown}, beside the bar {bar}"
    return "" if shown in (None, _true(a)) else f"on the page {shown}, truly {_true(a)}"


def way(a: Asked) -> str:
    """Check the part of the page that lists which jobs must finish: the jobs must run, and the
    number of free GPUs must be right. Return the error in words, or "".
    """
    shown = ints(a.way, r"needs ([\d,]+) GPUs?; ([\d,]+) of ([\d,]+) (?:is|are) free now")
    waits_on = a.moment.queued(a.job_id)
    if shown != (_true(a) if waits_on else None):
        return f"who must finish: {shown}, truly {_true(a)}"
    rows = re.findall(r'<th scope="row"><a href="[^"]*/jobs/([a-z0-9]{12})"', a.way)
    over = [name for name in rows if name not in a.moment.runs]
    return f"must finish, and have: {over}" if over else ""


CHECKS: dict[str, Callable[[Asked], str]] = {
    check.__name__: check
    for check in (
        phase,
        place,
        numbers,
        age,
        alive,
        whole,
        ran,
        ends,
        order,
        overtaken,
        begun,
        waits,
        wait,
        promise,
        sharing,
        belief,
        evidence,
        prediction,
        forecast,
        after_end,
        promised,
        changed,
        lines,
        printed,
        page,
        page_wait,
        page_numbers,
        way,
        tried,
        fewest,
        otherwise,
        helps,
        sooner,
    )
}
for moving in (place, numbers, overtaken, alive):
    CHECKS[f"printed_{moving.__name__}"] = _printed(moving)


def judged(a: Asked) -> dict[str, str]:
    """Return the result of every check of an answer, by name of the check: the error in words, or
    "". An answer that cannot be read is an error.
    """
    return {name: _checked(check, a) for name, check in CHECKS.items()}


def judged_between(a: Asked, log: Log, upto: int, since: int) -> dict[str, str]:
    """Return the result of every check of an answer, by name: the error in words, or "". The answer
    is right if it was right at any event between question and answer. If the job started in
    between, the page and the command line are not checked.
    """
    found = judged(a)
    if a.after and a.after["phase"] != a.told["phase"]:
        found |= {name: "" for name in CHECKS if name.startswith(("printed", "page", "way"))}
    for seq in range(since + 1, min(upto, since + MOST_EVENTS) + 1):
        if not any(found.values()):
            break
        then = replace(a, moment=log.until(seq))
        found = {k: why and _checked(CHECKS[k], then) for k, why in found.items()}
    return found


def _checked(check: Callable[[Asked], str], a: Asked) -> str:
    try:
        return check(a)
    except (LookupError, ValueError, TypeError, AttributeError, TrialFailed) as error:
        return f"cannot be read: {error!r}"
