"""Each kind of sentence falsified: the judge finds every lie, by the name of the check, and nothing
wrong in what is right."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from benchmarks.explanations import live
from benchmarks.explanations.asked import Asked
from benchmarks.explanations.audit import Found
from benchmarks.explanations.foreseen import after_end
from benchmarks.explanations.sentences import CHECKS, judged
from features.codec import decode
from pipeline.printed.why import lines_of
from scheduler.explain.explanation import Explanation

Said = dict[str, Any]
Lie = Callable[[Said, Asked], object]
JOBS, LOOKS = 72, 12  # submitted in all; answers that lies are planted in
NOBODY = "nobody000000"
WAY = re.compile(r"It would start if .+")


@pytest.fixture(scope="module")
def answers() -> Iterator[list[Asked]]:
    """What a service says of its waiting jobs once all have come."""
    with live.living() as service:
        life = live._Life(service, JOBS // 4, 3)
        life.look_at = inf
        life.run()
        life.follower.follow()
        core = life.follower.state.core
        waiting = [job_id for job_id in core.jobs if job_id not in core.cluster.runs]
        yield [life.asked(job_id) for job_id in waiting[:LOOKS]]


def _behind_one() -> list[Asked]:
    """Of a service where two ask for all GPUs, one after the other: of the second."""
    with live.living() as service:
        life = live._Life(service, 1, 3)
        asked = {"command": ["train", "3000", "50"], "gpus": 16, "vc": "language"}
        for _ in range(2):
            service.submit(live.Sent(0.0, "alan", asked))
            life._until(service.world.now() - service.start + 30.0)
        service.analyst.turn()
        life.follower.follow()
        core = life.follower.state.core
        return [life.asked(job_id) for job_id in core.jobs if job_id not in core.cluster.runs]


def test_nothing_is_wrong_in_what_is_right(answers: list[Asked]) -> None:
    assert len(answers) >= 6
    for a in answers:
        wrong = {name: why for name, why in judged(a).items() if why}
        assert wrong == {}


def _way(told: Said, words: str) -> None:
    analysis = told["analysis"]
    analysis["in_the_way"] = WAY.sub(words, analysis["in_the_way"])


def _runs(told: Said) -> list[Said]:
    return [one for one in told["analysis"]["holders"] if one["kind"] == "running job"]


def _words_of(told: Said, text: str, old: str, new: str) -> bool:
    """Replace in a sentence of the analysis; False: it does not say so."""
    was = told["analysis"][text]
    told["analysis"][text] = re.sub(old, new, was, count=1)
    return bool(told["analysis"][text] != was)


def _words(text: str, old: str, new: str) -> Lie:
    """A sentence of the analysis has other words."""
    return lambda told, a: _words_of(told, text, old, new)


def _put(name: str, value: Any) -> Lie:
    """The analysis says another value."""

    def lie(told: Said, a: Asked) -> object:
        told["analysis"][name] = value(told["analysis"][name]) if callable(value) else value

    return lie


def _place(by: int) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        told["analysis"]["position"] += by
        told["standing"]["position"] += by
        at = told["analysis"]["position"]
        return _words_of(told, "place", r"Number [\d,]+", f"Number {at}")

    return lie


def _everywhere(name: str, value: Callable[[int], int]) -> Lie:
    """A number of GPUs is another wherever it stands."""

    def lie(told: Said, a: Asked) -> object:
        made = value(told["analysis"][name])
        for part in (told["analysis"], told["principal"][0]):
            part[name] = made
        shape = {"need": r"needs [\d,]+", "free": r"[\d,]+ of", "limit": r"of [\d,]+ (?=is|are)"}
        word = {"need": f"needs {made}", "free": f"{made} of", "limit": f"of {made} "}[name]
        told["dominant"] = re.sub(shape[name], word, told["dominant"], count=1)
        return _words_of(told, "in_the_way", shape[name], word)

    return lie


def _holders(change: Callable[[list[Said], Asked], list[Said] | None]) -> Lie:
    """Others are named, in words too."""

    def lie(told: Said, a: Asked) -> object:
        made = change(told["analysis"]["holders"], a)
        if not made:
            return False
        told["analysis"]["holders"], told["analysis"]["in_all"] = made, len(made)
        names = ", ".join(one["job"] or str(one["node"]) for one in made)
        _way(told, f"It would start without {names}.")
        return True

    return lie


def _as_run(job: str, a: Asked) -> Said:
    since = a.moment.runs[job].since if job in a.moment.runs else a.asked_at - 60.0
    ran_s = a.analysis["at"] - since
    return {"kind": "running job", "job": job, "node": None, "closed": None, "ran_s": ran_s,
            "past_s": None, "ends_in_s": 60.0}  # fmt: skip


def _of_others(a: Asked, kind: str = "run") -> list[str]:
    """Jobs of other virtual clusters that run: nothing of them is in its way."""
    vc = a.moment.asked[a.job_id]["vc"]
    return [job for job, run in a.moment.runs.items() if run.vc != vc]


def _wrong_job(holders: list[Said], a: Asked) -> list[Said] | None:
    others = _of_others(a)
    return [_as_run(others[0], a)] if holders and others else None


def _ended(holders: list[Said], a: Asked) -> list[Said] | None:
    over = [job for job, (_, how) in a.moment.left.items() if how == "completed"]
    return [_as_run(over[-1], a)] if over else None


def _everybody(holders: list[Said], a: Asked) -> list[Said] | None:
    return [_as_run(job, a) for job in a.moment.runs]


def _one_too_many(holders: list[Said], a: Asked) -> list[Said] | None:
    others = _of_others(a)
    return [*holders, _as_run(others[0], a)] if holders and others else None


def _one_too_few(holders: list[Said], a: Asked) -> list[Said] | None:
    return holders[1:]


def _open_node(holders: list[Said], a: Asked) -> list[Said] | None:
    node = next(n for n in range(6) if n not in a.moment.closed)
    return [*holders, {"kind": "closed node", "job": "", "node": node, "closed": None}]


def _nobody(told: Said, a: Asked) -> object:
    told["analysis"] |= {"holders": [], "in_all": 0}
    _way(told, "")


def _even_then(told: Said, a: Asked) -> object:
    why = "the policy would keep it waiting"
    told["analysis"] |= {"holders": [], "in_all": 0, "still": "GpusBusy"}
    _way(told, f"Even with nothing in its way it would not start yet: {why}.")
    return bool(a.analysis["holders"])


def _hidden_job(told: Said, a: Asked) -> object:
    del told["analysis"]["holders"][-1:]


def _unnamed(told: Said, a: Asked) -> object:
    for one in told["analysis"]["holders"]:
        one["job"] = ""
    return bool(_runs(told))


def _ran(by: float) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        for one in _runs(told):
            one["ran_s"] = one["ran_s"] * by + 1.0
        return bool(_runs(told))

    return lie


def _never_late(told: Said, a: Asked) -> object:
    late = [one for one in _runs(told) if one["past_s"]]
    for one in late:
        one["past_s"] = None
    return bool(late)


def _late(told: Said, a: Asked) -> object:
    timely = [one for one in _runs(told) if not one["past_s"]]
    for one in timely:
        one["past_s"] = 600.0
    return bool(timely)


def _ends(seconds: Callable[[float], float], words: str) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        for one in _runs(told):
            one["ends_in_s"] = seconds(one["ends_in_s"])
        return _words_of(told, "in_the_way", r"should end in [^,)]+", f"should end in {words}")

    return lie


def _false_alternative(told: Said, a: Asked) -> object:
    others = _of_others(a)
    if not others:
        return False
    told["analysis"] |= {
        "either": [_as_run(others[0], a)],
        "alternatives": 1,
        "instead": [],
        "otherwise": "The end of one other job would do as well.",
    }
    return True


def _more_ways(told: Said, a: Asked) -> object:
    told["analysis"]["otherwise"] = "The end of any of 77 other jobs would do as well."


def _no_help(told: Said, a: Asked) -> object:
    for one in told["analysis"]["suggestions"]:
        one |= {"starts_now": True, "words": "as it is", "changes": {"gpus": a.analysis["need"]}}


def _sooner(start_s: float, gain_s: float) -> Lie:
    """With one GPU it would start so many seconds from now, and 18 minutes later as it is."""

    def lie(told: Said, a: Asked) -> object:
        at = a.analysis["at"] + start_s
        now, then = ({"start_p50": at + by, "estimate": None} for by in (1080.0, 0.0))
        one = {"job_id": a.job_id, "changes": {"gpus": 1}, "words": "with 1 GPU", "now": now,
               "then": then, "starts_now": False, "gain_s": gain_s}  # fmt: skip
        told["analysis"]["suggestions"] = [one]
        return a.analysis["free"] == 0

    return lie


def _order(by: float, one: bool = False) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        for term in told["analysis"]["order"][: 1 if one else None]:
            term["seconds"] *= by

    return lie


def _renamed(told: Said, a: Asked) -> object:
    term = told["analysis"]["order"][0]
    told["analysis"]["place"] = told["analysis"]["place"].replace(term["what"], "how long it runs")
    term["what"] = "how long it runs"
    return True


def _order_in_two(told: Said, a: Asked) -> object:
    """The sum is right, and the prediction is not."""
    terms = told["analysis"]["order"]
    terms[0]["seconds"] += 600.0
    terms[-1]["seconds"] -= 600.0
    return len(terms) > 1


def _overtaken(change: Callable[[Said], object]) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        return False if told["overtaken"] is None else change(told["overtaken"])

    return lie


def _nobody_overtook(told: Said, a: Asked) -> object:
    was, told["overtaken"] = told["overtaken"], None
    return bool(was)


def _other_cause(of: Said) -> object:
    of["why"] = {"had GPUs kept after a long wait": of["jobs"]}


def _waits(change: Callable[[Said], object]) -> Lie:
    return lambda told, a: change(max(told["waits"], key=lambda one: float(one["seconds"])))


def _whole(old: str, new: str) -> Lie:
    """What its wait was made of is another, in words."""

    def lie(told: Said, a: Asked) -> object:
        was = told["wait"]["text"]
        told["wait"]["text"] = re.sub(old, new, was, count=1)
        return bool(told["wait"]["text"] != was)

    return lie


def _who_had_it(told: Said, a: Asked) -> object:
    others = _of_others(a)
    return bool(others) and _whole(r"job \w+ had", f"job {others[0]} had")(told, a)


def _promised_soon(told: Said, a: Asked) -> object:
    told["analysis"]["bound_s"] = 300.0
    return _words_of(told, "promise", r"kept for it in .+? \(", "kept for it in 5 min (")


def _other_ratio(told: Said, a: Asked) -> object:
    if _words_of(told, "promise", r"[\d.]+ times the GPUs", "22.9 times the GPUs"):
        return True
    longer = "after its submission, longer: jobs ask for 22.9 times the GPUs it may run on"
    return _words_of(told, "promise", "after its submission", longer)


def _belief(**values: Any) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        told["belief"] |= {k: v(told) if callable(v) else v for k, v in values.items()}

    return lie


def _belief_words(old: str, new: str) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        was = told["belief"]["text"]
        told["belief"]["text"] = re.sub(old, new, was, count=1)
        return told["belief"]["text"] != was

    return lie


def _evidence(told: Said, a: Asked) -> object:
    text = "Its owner's last 12 jobs of this name ran 1 s to 2 s"
    told["belief"] |= {"evidence": text, "text": f"{told['belief']['text']} {text}."}


def _no_evidence(told: Said, a: Asked) -> object:
    was, told["belief"]["evidence"] = told["belief"]["evidence"], ""
    return bool(was)


def _terms(told: Said, a: Asked) -> object:
    told["contributions"][0]["log_seconds"] *= -7
    return bool(told["contributions"][0]["log_seconds"])


def _forecast(**values: Callable[[Said, Asked], float]) -> Lie:
    def lie(told: Said, a: Asked) -> object:
        made = told["forecast"]
        if made is None or made["start_p50"] is None:
            return False
        made |= {name: value(made, a) for name, value in values.items()}
        return True

    return lie


def _foreseen(told: Said, a: Asked) -> object:
    if told["promised"] is None or told["promised"]["start_p50"] is None:
        return False
    told["promised"]["start_p50"] += 3600.0
    return True


LIES: dict[str, tuple[str, Lie]] = {
    "it runs": ("phase", lambda told, a: told.update(phase="running")),
    "it came an hour ago": (
        "phase", lambda told, a: told["times"].update(submitted_at=a.asked_at - 3600.0)),
    "it has started": ("phase", lambda told, a: told["times"].update(started_at=a.asked_at)),
    "it has waited for days": (
        "phase", lambda told, a: told.update(waited_s=400 * 86_400.0)),
    "a place further back": ("place", _place(1)),
    "the place of yesterday, in words": ("place", _words("place", r"Number [\d,]+", "Number 99")),
    "a longer line": ("place", _put("waiting", lambda n: n + 3)),
    "one more is free": ("numbers", _everywhere("free", lambda n: n + 1)),
    "fewer are needed": ("numbers", _everywhere("need", lambda n: n + 1)),
    "of the whole cluster": ("numbers", _everywhere("limit", lambda n: 48)),
    "two numbers of free GPUs": (
        "numbers", lambda told, a: told["principal"][0].update(free=told["analysis"]["free"] + 2)),
    "a state to come": ("age", _put("at", lambda at: at + 600.0)),
    "a run that has ended": ("alive", _holders(_ended)),
    "a job that is none": ("alive", _holders(lambda h, a: [_as_run(NOBODY, a)])),
    "an open node": ("alive", _holders(_open_node)),
    "nobody": ("whole", _nobody),
    "a hidden job": ("whole", _hidden_job),
    "runs without names": ("whole", _unnamed),
    "another name in words": (
        "whole", _words("in_the_way", r"running job [a-z0-9]{12}", f"running job {NOBODY}")),
    "another number in words": (
        "whole", _words("in_the_way", r"(\d+) running jobs", "9 running jobs")),
    "the wrong job": ("tried", _holders(_wrong_job)),
    "one left out": ("tried", _holders(_one_too_few)),
    "even with nothing in its way": ("tried", _even_then),
    "everybody": ("fewest", _holders(_everybody)),
    "one too many": ("fewest", _holders(_one_too_many)),
    "a run of minutes in seconds": ("ran", _ran(60.0)),
    "a run that has just begun": ("ran", _ran(0.0)),
    "a late run on time": ("ran", _never_late),
    "a run on time late": ("ran", _late),
    "ends in 4,000 years": ("ends", _ends(lambda s: 1.26e11, "4,000 years")),
    "ended already": ("ends", _ends(lambda s: -60.0, "-60 s")),
    "ends in another unit": ("ends", _ends(lambda s: s * 60.0 + 9e5, "9 d")),
    "ends in another unit, in words": (
        "ends", _words("in_the_way", r"(should end in [\d.]+) (s|min|h)", r"\1 d")),
    "not late, in words": ("ends", _words("in_the_way", r"past its prediction, ", "")),
    "another would do as well": ("otherwise", _false_alternative),
    "many would do as well": ("otherwise", _more_ways),
    "what does not help": ("helps", _no_help),
    "sooner by twice as much": ("sooner", _sooner(9e6, 2160.0)),
    "terms times -7": ("order", _order(-7.0)),
    "one term times 2": ("order", _order(2.0, one=True)),
    "two terms wrong that cancel": ("order", _order_in_two),
    "a debit for waiting": ("order", _words("place", "for waiting -", "for waiting +")),
    "a term in another unit": (
        "order", _words("place", r"(on|mean) \+(\d+) (s|min|h)", r"\1 +\2 d")),
    "a place of 0.4 s later": ("order", _put("at", lambda at: at - 0.4)),
    "what the model says as how long it runs": ("order", _renamed),
    "two numbers of one model": (
        "order", _belief_words("model predicts .+?:", "model predicts 9 d:")),
    "nobody went first": ("overtaken", _nobody_overtook),
    "five more went first": (
        "overtaken", _overtaken(lambda of: of.update(jobs=of["jobs"] + 5))),
    "another cause": ("overtaken", _overtaken(_other_cause)),
    "another number, in words": ("wait", _whole(r"(\d+ jobs? submitted later)", r"99\1")),
    "it waited for another reason": (
        "waits", _waits(lambda one: one.update(reason="NodeDrained"))),
    "it waited twice as long": ("waits", _waits(lambda one: one.update(seconds=9e5))),
    "another share": ("waits", _waits(lambda one: one.update(share=one["share"] / 3))),
    "it needed more GPU hours": ("wait", _whole(r"(long (?:is|are)) [\d.,]+ GPU", r"\1 777 GPU")),
    "it waited in another unit": ("wait", _whole(r"waited (\d+) \w+", r"waited \1 d")),
    "another part of the wait": ("wait", _whole(r"\(\d+ %", "(41 %")),
    "it waited for a limit": ("wait", _whole(r"too few GPUs free", "a limit that Slurm sets")),
    "another had the GPUs": ("wait", _who_had_it),
    "one had them all the time": ("wait", _whole(r"had [\d.,]+ GPU", "had 612 GPU")),
    "others had none": (
        "wait", _whole(r" and \d+ other jobs? had [\d.,]+ GPU \w+( together)?", "")),
    "one that outlived its prediction kept to it": (
        "wait", _whole(r"to run .+?, (ran|has run) (.+?)\)", r"to run \2, \1 \2)")),
    "nobody went first, of the whole wait": (
        "wait", _whole(r" \d+ jobs? submitted later .+?\.", "")),
    "it passed the bound": (
        "wait", _whole("$", " It waited longer than 2 d, the bound after which a job goes first.")),
    "GPUs are kept in five minutes": ("promise", _promised_soon),
    "kept at another time, in words": (
        "promise", _words("promise", r"it in .+? at the", "it in 9 min at the")),
    "another bound": ("promise", _words("promise", r"\(.+? after its", "(1 h after its")),
    "a promise without its condition": (
        "promise", _words("promise", r"later if more is asked for meanwhile", "certainly")),
    "another ratio": ("promise", _other_ratio),
    "GPUs are kept for it now": (
        "promise", _put("promise", "4 GPUs are kept for it, all of them free; no other starts.")),
    "nothing is promised": ("promise", _put("bound_s", None)),
    "a partner at half speed": (
        "sharing", _put("sharing", "beside the best it would run at 50% and the other at 40%")),
    "the score for the belief": (
        "belief", _belief(p50_s=lambda told: told["estimate_s"] * 1.5)),
    "a belief beyond its limit": ("belief", _belief(p90_s=9e9)),
    "a belief in another unit": ("belief", _belief_words(r"about (\S+) (s|min|h)", r"about \1 d")),
    "evidence that is none": ("evidence", _evidence),
    "evidence kept quiet": ("evidence", _no_evidence),
    "terms of a prediction times -7": ("prediction", _terms),
    "another factor in words": ("prediction", _belief_words(r"×[\d]+\.\d+", "×7.77")),
    "another base": ("prediction", _belief_words(": [^:]+? as for", ": 9 d as for")),
    "it started long ago": (
        "forecast", _forecast(start_p50=lambda m, a: 0.0, start_p90=lambda m, a: 1.0)),
    "p90 before p50": ("forecast", _forecast(start_p90=lambda m, a: m["start_p50"] - 99.0)),
    "foreseen tomorrow": ("forecast", _forecast(made_at=lambda m, a: a.asked_at + 86_400.0)),
    "another forecast at submission": ("promised", _foreseen),
    "moved, where it has not": (
        "changed", _put("changed", "30 d later than foreseen 4 h ago: 1 node is closed.")),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_planted_lie_is_found(name: str, answers: list[Asked]) -> None:
    check, lie = LIES[name]
    for a in answers:
        told = deepcopy(dict(a.told))
        if lie(told, a) is not False and told != a.told:
            lines = "\n".join(lines_of(decode(Explanation, told), a.answered_at, full=True))
            assert CHECKS[check](a) == "", "the truth"
            assert judged(replace(a, told=told, printed=told, lines=lines))[check]
            return
    pytest.fail("no answer in which to plant it")


def _printed(part: str, value: Any) -> Callable[[Asked], Asked]:
    """Something else on the command line than is so."""

    def lie(a: Asked) -> Asked:
        other = deepcopy(dict(a.printed))
        if part == "holders":
            other["analysis"][part] = value
        elif part == "overtaken":
            other[part] = value
        else:
            other["analysis"][part] += value
        return replace(a, printed=other)

    return lie


FIVE = {"jobs": 5, "why": {"had GPUs kept after a long wait": 5}}
WEEKS = [{"reason": "GpusBusy", "seconds": 1e6, "share": 1.0}]
PRINTED = (
    ("numbers", "free", 3), ("place", "position", 2), ("overtaken", "overtaken", FIVE),
    ("alive", "holders", [{"kind": "running job", "job": NOBODY, "node": None}]),
)  # fmt: skip


def _of_before(a: Asked) -> Said:
    """Old, without a word of it where it is printed."""
    return {**a.told, "analysis": {**a.analysis, "at": a.analysis["at"] - 600.0}}


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("age", lambda a: replace(a, told=_of_before(a))),
        ("lines", lambda a: replace(a, lines=a.lines.replace(a.analysis["place"], "Soon."))),
        ("forecast", lambda a: replace(a, lines=re.sub(r"\d\d:\d\d", "00:00", a.lines))),
        ("printed", lambda a: replace(a, printed={**a.printed, "phase": "running"})),
        ("printed", lambda a: replace(a, printed={**a.printed, "estimate_s": 1.0})),
        ("begun", lambda a: replace(a, begun={**a.begun, "overtaken": FIVE})),
        ("begun", lambda a: replace(a, begun={**a.begun, "waits": WEEKS})),
        ("page", lambda a: replace(a, page=a.page.replace("It should run about", "It runs"))),
        ("page_wait", lambda a: replace(a, page=a.page.replace("Meanwhile, of", "Later, of"))),
        ("page_wait", lambda a: replace(a, page=a.page.replace("GPUs free (", "limit reached ("))),
        *((f"printed_{name}", _printed(*lie)) for name, *lie in PRINTED),
        ("page_numbers", lambda a: replace(a, page=re.sub(r", \d+ of", ", 77 of", a.page))),
        ("way", lambda a: replace(a, way=re.sub(r"; \d+ of", "; 77 of", a.way))),
        ("way", lambda a: replace(a, way="It starts soon.")),
    ],
)
def test_one_who_says_otherwise_is_found(
    name: str, lie: Callable[[Asked], Asked], answers: list[Asked]
) -> None:
    found = [a for a in answers if a.told["forecast"] and a.told["forecast"]["start_p50"]]
    a = next(a for a in found if a.begun)
    assert CHECKS[name](a) == ""
    assert judged(lie(a))[name]


def test_a_start_before_the_end_that_it_waits_for_is_found() -> None:
    (a,) = _behind_one()
    assert after_end(a) == ""
    assert len(a.analysis["holders"]) == 1
    for start_s in (0.0, 9e6):
        made = a.told["forecast"] | {"start_p50": a.analysis["at"] + start_s}
        assert judged(replace(a, told={**a.told, "forecast": made}))["after_end"]
        crude = replace(a, told={**a.told, "forecast": made | {"estimate": "crude"}})
        assert bool(after_end(crude)) == (start_s == 0.0)  # it may be far too late
    holder = a.analysis["holders"][0]["job"]
    two = replace(a.moment.runs[holder], gpus={3: 0b1010000})  # of the sixteen
    asked = {a.job_id: a.moment.asked[a.job_id] | {"gpus": 14}}
    fits = replace(a.moment, asked=a.moment.asked | asked, runs={holder: two})
    now = a.told["forecast"] | {"start_p50": a.analysis["at"]}
    assert after_end(replace(a, moment=fits, told={**a.told, "forecast": now})) == ""
    asked = {a.job_id: a.moment.asked[a.job_id] | {"gpus": 15}}
    tight = replace(fits, asked=a.moment.asked | asked)
    assert after_end(replace(a, moment=tight, told={**a.told, "forecast": now})) != ""


def test_what_would_be_sooner_is_not_before_the_end_that_it_waits_for() -> None:
    (a,) = _behind_one()
    (holder,) = a.analysis["holders"]
    for share, found in ((0.5, "must end before"), (1.0, "")):
        told = deepcopy(dict(a.told))
        assert _sooner(share * holder["ends_in_s"], 1080.0)(told, a)
        lines = "\n".join(lines_of(decode(Explanation, told), a.answered_at, full=True))
        wrong = CHECKS["sooner"](replace(a, told=told, lines=lines))
        assert found in wrong
        assert bool(found) == bool(wrong)
        at_once = lines.replace("18 min earlier", "at once")
        assert CHECKS["sooner"](replace(a, told=told, lines=at_once))


def test_the_same_answer_for_all_fails(answers: list[Asked]) -> None:
    first = answers[0]
    others = [a for a in answers if a.job_id != first.job_id]
    assert others
    for a in others:
        found = judged(replace(a, told=first.told, printed=first.told, lines=first.lines))
        assert sum(map(bool, found.values())) > 3


def test_no_kind_of_sentence_is_without_a_lie() -> None:
    planted = {check for check, _ in LIES.values()}
    planted |= {
        "begun",
        "lines",
        "printed",
        "page",
        "page_wait",
        "page_numbers",
        "way",
        "after_end",
    }
    planted |= {f"printed_{name}" for name, *_ in PRINTED}
    assert planted == CHECKS.keys()
    assert len(LIES) >= 40
    assert Found("none").said == []


def test_a_mean_that_the_recorded_durations_do_not_give_is_found(answers: list[Asked]) -> None:
    """What the order says is what was recorded to count, and that was miscounted."""
    found = []
    for a in answers:
        moment = deepcopy(a.moment)
        rows = [r for r in moment.by_job[a.job_id] if r["body"].get("receipt")]
        if not rows or "p90_s" not in dict(rows[-1]["body"]["evidence"]):
            continue
        body = rows[-1]["body"]
        told = [one for one in body["evidence"] if one[0] != "counts_s"]
        body["evidence"] = [*told, ["counts_s", moment.last(a.job_id, "estimate_s")]]
        found.append(CHECKS["order"](replace(a, moment=moment)))
    assert any("by the durations recorded" in why for why in found), found
