"""The one place where explanations are put into words: for the command line, pages, agents, the
report and Slurm's comment. All of these call `render`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto

from features.states import MENDABLE, State
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.findings import NodesLookedAt, Promise
from scheduler.core.phase import OVER, Phase
from scheduler.core.plural import are, count, were
from scheduler.core.tree_steps import (
    MISSING,
    SCORES,
    WITHHELD,
    TreeStep,
    corrected_step,
    speed_step,
)
from scheduler.explain.answer import (
    Analysis,
    Cause,
    Group,
    InTheWay,
    Kept,
    Known,
    MovedStart,
    Next,
    NotShared,
    ShutNode,
)
from scheduler.explain.belief import belief_words, guessed_words
from scheduler.explain.causes import Causes
from scheduler.explain.effect import ByNode, Eta, Tried, WhatIfAnswer
from scheduler.explain.explanation import (
    Compared,
    DecisionValues,
    Explanation,
    Finding,
    Packing,
    PathStep,
    StartForecastRow,
    Waited,
)
from scheduler.explain.reasons import AT_ONCE, SHARING, next_step, sentence
from scheduler.explain.waited import wait_words
from scheduler.explain.words import (
    AT_ONCE_S,
    ON_THE_MEAN,
    ONE_CURVE,
    ForecastKind,
    bound_words,
    clock_time,
    closed_words,
    comparison,
    drained_words,
    duration,
    gain_words,
    has_gpus,
    hold_words,
    how_it_ended,
    listed,
    overtaken_words,
    phrase,
    record_words,
    roughly,
    sentence_of,
    signed,
    starts,
    stated_words,
)
from scheduler.slurm.reason import SlurmReason, headline
from scheduler.slurm.reason import rows as slurm_rows


class Depth(IntEnum):
    """How much of an explanation is shown: one line; the rows that the owner of a waiting job reads
    first; or all rows.
    """

    LINE = 0
    BRIEF = 1
    WHOLE = 2


class Reader(Enum):
    """The kinds of readers for whom an explanation is put into words."""

    TERMINAL = auto()  # and so commands are named, and old answers say how old they are
    PAGE = auto()
    AGENT = auto()  # a program: what other people wrote is data, and not repeated
    RECORD = auto()  # of a moment that is past


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence or two about one kind of finding. `label` is the heading shown before the text."""

    kind: str
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class _About:
    """The explanation that is put into words, its reader, the time, and how much is shown.

    Attributes:
        job: the explanation of the job; None if only the analysis of its wait is shown.
        wait: the analysis of the job's wait; None without one.
    """

    job: Explanation | None
    wait: Analysis | None
    depth: Depth
    reader: Reader
    now: float
    codes: bool = False

    @property
    def over(self) -> bool:
        return self.job is not None and self.job.phase in OVER

    @property
    def never(self) -> bool:
        """Whether the job waits, and cannot start since its virtual cluster is too small. Its
        reason is shown before anything else."""
        job = self.job
        return job is not None and self.wait is not None and job.reason == Reason.VC_TOO_SMALL

    @property
    def in_slurm(self) -> SlurmReason | None:
        """Why the followed Slurm keeps the job waiting. None for a job that Slurm has started, that
        is over, or that is not Slurm's."""
        return None if self.job is None else _in_slurm(self.job)


_Rows = Iterator[tuple[str, str]]


def render(
    found: Explanation | Analysis,
    depth: Depth,
    reader: Reader,
    now: float | None = None,
    *,
    codes: bool = False,
) -> list[Row]:
    """Return the rows of an explanation in words. A given analysis is shown without the rest of the
    explanation. Without an analysis, `Depth.BRIEF` shows all rows.

    Args:
        now: time at which the reader reads, seconds since the epoch. None: the time of the
            analysis (0 without one).
        codes: also show the codes of reasons.
    """
    job = found if isinstance(found, Explanation) else None
    wait = found.analysis if isinstance(found, Explanation) else found
    if wait is not None and (wait.unavailable or (job is not None and _in_slurm(job))):
        wait = None
    if job is not None and wait is None and depth is Depth.BRIEF:
        depth = Depth.WHOLE
    at = now if now is not None else (wait.at if wait is not None else None) or 0.0
    about = _About(job=job, wait=wait, depth=depth, reader=reader, now=at, codes=codes)
    rows = [
        Row(kind, label, text)
        for kind, least, say in _SAYS
        if least <= depth
        for label, text in say(about)
        if text
    ]
    return _in_own_words(found, rows) if reader is Reader.AGENT else rows


def says(
    found: Explanation | Analysis, reader: Reader = Reader.PAGE, depth: Depth = Depth.WHOLE
) -> dict[str, str]:
    """Return the text of an explanation for each kind of row, "" for a kind without a row. Times
    are relative to the time of the analysis."""
    texts = {kind: "" for kind, *_ in _SAYS}
    for row in render(found, depth, reader):
        texts[row.kind] = " ".join(filter(None, [texts[row.kind], row.text]))
    return texts


def comment(d: Decision) -> str:
    """Return the reason why a job waits as text for its AdminComment in Slurm. Every user can read
    that field, so the text names no other job.
    """
    return f"{d.reason}: {sentence(d, visible=())}"


def _in_slurm(job: Explanation) -> SlurmReason | None:
    waits = job.slurm is not None and not job.slurm.started and job.phase not in OVER
    return job.slurm if waits else None


def _in_own_words(found: Explanation | Analysis, rows: list[Row]) -> list[Row]:
    """Return the rows, where a text that an administrator wrote as Slurm's reason is replaced by a
    reference to the data. An agent must not take such text for the program's own words."""
    slurm = found.slurm if isinstance(found, Explanation) else None
    if slurm is None or not slurm.code or re.fullmatch(r"[A-Za-z]{1,48}", slurm.code):
        return rows
    wrote, instead = f"Slurm says {slurm.code}", "Slurm says a text that is in data.slurm.code"
    return [replace(row, text=row.text.replace(wrote, instead)) for row in rows]


def _first(about: _About) -> _Rows:
    """Yield the row that says which phase the job is in, and why."""
    job, wait = about.job, about.wait
    if job is None:
        yield "", "" if wait is None else dominant(wait)
        return
    code = f" [{job.reason}]" * about.codes
    if wait is not None and about.depth is Depth.BRIEF:
        place = ""
        if wait.position is not None and wait.waiting is not None:
            place = f", {in_queue(wait.position, wait.waiting)}"
        why = dominant(wait) if about.never else start_words(job.forecast, about.now)
        yield "", f"{job.job_id} is {job.phase}{place}: {why}.{code}"
        return
    stands = "over" if about.over else _STANDS.get(job.phase, job.phase)
    why = first_words(job) if wait is None else dominant(wait)
    yield "", f"{job.job_id} is {stands}: {why}{code}"


_STANDS = {
    "profiling": "being profiled",
    "starting": "about to start",
}  # phases that read badly after "is"


def _start(about: _About) -> _Rows:
    """Yield the row on when a waiting job should start."""
    if about.job is not None and about.job.standing is not None:
        when = start_words(about.job.forecast, about.now)
        line = f"It {when}" if has_start(about.job.forecast) else f"{when[0].upper()}{when[1:]}"
        yield "", f"{line}."


def has_start(made: StartForecastRow | None) -> bool:
    """Return whether a forecast has an expected or a latest start. If it has none, its words
    (`start_words`) have a subject of their own."""
    if made is None or made.start_p50 is not None:
        return made is not None
    return made.latest is not None and made.estimate != ForecastKind.IMPOSSIBLE


def start_words(made: StartForecastRow | None, now: float) -> str:
    """Return the forecast start of a job in words, as `words.starts` does. If `made` is None, the
    words say that the start is unknown."""
    if made is None:
        return starts(None, None, "", now)
    return starts(
        made.start_p50,
        made.start_p90,
        made.why_not,
        now,
        estimate=made.estimate,
        latest=made.latest,
        no_latest=made.no_latest,
        stated=made.stated,
    )


def _times(about: _About) -> _Rows:
    """Yield the row that says when the job was submitted, when it became eligible to start or that
    it is not yet, and when it started, if it has.
    """
    if about.job is None:
        return
    times, now = about.job.times, about.now
    submitted, eligible, started = times.submitted_at, times.eligible_at, times.started_at
    words = [f"It was submitted {_between(submitted, now)} ago"]
    if eligible is not None:
        words.append(f"was allowed to start {_after(submitted, eligible, 'later')}")
    elif times.ended_at is None and started is None:
        words.append("is not allowed to start yet")
    if started is not None:
        words.append(f"began to run {_after(eligible or submitted, started, 'after that')}")
    yield "", f"{listed(words)}."


def in_queue(position: int, waiting: int) -> str:
    """Return as text a position in the queue and how many jobs wait there: "number 2 of 9"."""
    return f"number {position:,} of {waiting:,}"


def _between(start: float, end: float) -> str:
    return duration(max(0.0, end - start))


def _after(start: float, end: float, how: str) -> str:
    return "at once" if end - start < AT_ONCE_S else f"{_between(start, end)} {how}"


def _hold(about: _About) -> _Rows:
    if about.job is not None and about.job.hold:
        job = about.job
        since = clock_time(job.held_at or about.now, about.now)
        held = f"{hold_words(job.hold, job.held_by)} since {since}"
        only = "Only an operator can release it" if job.hold == "operator" else "Release it"
        then = "The time for which it is held does not count as waiting"
        text = f"{held[:1].upper()}{held[1:]}. {then}. {only}: pellucid release {job.job_id}"
        yield "Held", text


def _detail(about: _About) -> _Rows:
    job = about.job
    if job is None or about.over or about.in_slurm is not None:
        return
    if job.detail not in ("", first_words(job)):
        yield "Detail", job.detail


def _slurms(about: _About) -> _Rows:
    if about.job is not None and about.in_slurm is not None:
        yield from slurm_rows(about.in_slurm, about.job.job_id, about.now)


OLD_S = 3.0  # an answer of longer ago says how old it is


def _way(about: _About) -> _Rows:
    """Yield the row on the runs, jobs and nodes that a waiting job waits for. At a terminal and for
    an agent, the row says how old the analysis is, if it is older than `OLD_S`.
    """
    wait = about.wait
    if wait is None or (about.never and about.depth is Depth.BRIEF):
        return
    text = in_the_way(wait, recorded=about.reader is Reader.RECORD)
    age_s = about.now - (about.now if wait.at is None else wait.at)
    if age_s >= OLD_S and about.reader in (Reader.TERMINAL, Reader.AGENT):
        lacks = "what was submitted, started or ended since is not counted"
        text = f"As of {roughly(age_s)} ago ({lacks}): {text}"
    yield "In the way", text


def _otherwise(about: _About) -> _Rows:
    if about.wait is not None:
        yield "Or", otherwise(about.wait)


def _nodes(about: _About) -> _Rows:
    found = about.wait.nodes if about.wait is not None else None
    if about.wait is not None and found is not None and found.looked_at:
        yield "Nodes", nodes_words(found, about.wait.need or 0)


def nodes_words(found: NodesLookedAt, gpus: int) -> str:
    """Return how many nodes cannot take a job, by the reason: "Of 12 nodes, 9 have too few GPUs
    free, 1 has too many GPUs closed to new jobs and 2 are of another GPU type. At most 2 GPUs are
    free on one node; it asks for 4.".
    """
    parts = [
        (found.busy, "has", "have", "too few GPUs free"),
        (found.kept, "has", "have", "enough GPUs free, but they are kept for another job"),
        (found.closed, "has", "have", "too many GPUs closed to new jobs"),
        (found.other_type, "is", "are", "of another GPU type"),
        (found.free, "has", "have", "as many GPUs free as it would take there"),
    ]
    free = f"{count(found.most_free, 'GPU')} {are(found.most_free)} free"
    if found.looked_at == 1:
        which = next(f"The only node {one} {what}." for n, one, _, what in parts if n)
        return f"{which} {free} on it; it asks for {gpus}." if found.busy else which
    texts = [f"{n:,} {one if n == 1 else many} {what}" for n, one, many, what in parts if n]
    which = f"Of {count(found.looked_at, 'node')}, {listed(texts)}."
    return f"{which} At most {free} on one node; it asks for {gpus}." if found.busy else which


def _placed(about: _About) -> _Rows:
    stands = about.job.standing if about.job is not None and about.in_slurm is None else None
    if about.wait is not None:
        yield "Place", place(about.wait)
    elif stands is not None:
        yield "Place", f"It is {in_queue(stands.position, stands.waiting)} in line."


def _latest(about: _About) -> _Rows:
    """Yield the row with the latest start of a job. Yield none if the row with the forecast start
    gives it already.
    """
    made = about.job.forecast if about.job is not None and about.in_slurm is None else None
    if made is not None and made.start_p50 is not None:
        if made.latest is None:
            yield "At the latest", stated_words(made.stated, about.now)
        else:
            yield "At the latest", bound_words(made.latest, made.stated, about.now)


def _waited(about: _About) -> _Rows:
    if about.job is not None and about.job.whole_wait is not None and about.in_slurm is None:
        yield "Its wait", waited_words(about.job, about.job.whole_wait)


def waited_words(job: Explanation, found: Waited) -> str:
    """Return as text what a job's wait consisted of, or has so far."""
    began = decision_words(job.waits[0], job.job_id) if job.waits else ""
    overtaken = job.overtaken.why if job.overtaken is not None else {}
    return wait_words(job.job_id, found, job.waits, overtaken=overtaken, began=began)


def decision_words(one: DecisionValues, job_id: str) -> str:
    """Return the sentence of a decision about a job. A reason code that this version does not know
    is given by the words in its name."""
    if not one.action and one.reason == Reason.NOT_YET_EVALUATED:
        return "in the queue, no reason recorded yet"
    action = one.action or Action.WAIT  # an older service tells none
    if one.reason not in {*Reason} or action not in {*Action}:
        return phrase(one.reason)
    evidence = (
        ("closed_gpus", one.closed), ("gone_in_s", one.gone_in_s), (AT_ONCE, one.at_once)
    )  # fmt: skip
    decided = Decision(
        seq=0,
        time=0.0,
        action=Action(action),
        reason=Reason(one.reason),
        job_id=job_id,
        vc="",
        need=one.need,
        free=one.free,
        limit=one.limit,
        position=one.position,
        blocker=one.blocker,
        partner=one.partner,
        held_by=tuple(one.held_by),
        evidence=tuple((name, value) for name, value in evidence if value is not None),
    )
    return sentence_of(decided)


def _promised(about: _About) -> _Rows:
    """Yield the row with the start that was forecast when the job was submitted. Only a job that
    waited, and now runs or has ended, gets this row.
    """
    job = about.job
    if job is None or about.in_slurm is not None or job.standing is not None:
        return
    made, waited = job.promised, any(w.seconds >= AT_ONCE_S for w in job.waits)
    if waited and made is not None and made.start_p50 and made.start_p50 > made.made_at:
        yield "Foreseen", f"When it was submitted: {start_words(made, made.made_at)}."


def _overtaken(about: _About) -> _Rows:
    job = about.job if about.in_slurm is None else None
    found = job.overtaken if job is not None else None
    if job is not None and found is not None and (about.depth is Depth.BRIEF or not job.whole_wait):
        yield "Overtaken", overtaken_words(found.why)


def _promise(about: _About) -> _Rows:
    if about.wait is not None:
        yield "Promise", promise(about.wait)


def _history(about: _About) -> _Rows:
    if about.wait is not None and about.wait.history is not None:
        yield "Its history", rests_on(about.wait.history)


def _changed(about: _About) -> _Rows:
    """Yield the row that says how much later or earlier the forecast start is than before. With
    `Depth.BRIEF`, name only the main cause, and yield no row for a small change.
    """
    found = about.wait.moved if about.wait is not None else None
    if found is None or about.wait is None:
        return
    at, brief = about.wait.at or 0.0, about.depth is Depth.BRIEF
    if not brief or found.considerable:
        yield "Changed", moved_words(found, at, 1 if brief else None)


def _sharing(about: _About) -> _Rows:
    if about.wait is not None and about.wait.not_shared is not None:
        yield "Sharing", sharing(about.wait.not_shared)


def _earlier(about: _About) -> _Rows:
    job = about.job
    if job is not None and (job.standing is not None or job.hold or about.over):
        label = "Last decided" if about.over else "Earlier"
        for one in job.principal[1:]:
            yield label, f"{_between(one.since, about.now)} ago: {finding_words(job, one)}"


BRIEFLY = 1  # of the changes that would help, the best; unless asked for all


def _could(about: _About) -> _Rows:
    """Yield rows on what the job's owner could do: changes that start it sooner, how to run a
    failed job again, or what helps against the reason for its state."""
    job, brief = about.job, about.depth is Depth.BRIEF
    if job is None:
        return
    if about.wait is not None:
        best = about.wait.suggestions[: BRIEFLY if brief else None]
        offers = [offer_words(one, about.now) for one in best]
        never = [f"{_remedy(job)}."] * about.never
        texts = offers if brief else [f"{one}." for one in offers]
        for text in [*texts, *never] if brief else [*never, *texts]:
            yield "You could", text
    elif job.slurm is None and about.over and job.times.started_at and job.state in MENDABLE:
        yield "You could", _again(job)
    elif not job.hold and about.in_slurm is None:
        yield "You could", _remedy(job)


def _again(job: Explanation) -> str:
    """Return how a failed job is run again: alone, where it shared its GPUs at its end; with more
    memory, where it ran out of it."""
    how, alone = "Run it again", ""
    if job.crowded_out:
        how += " on GPUs of its own, as it failed beside another job"
        alone = " --no-share"
    if job.state == State.OUT_OF_MEMORY:
        how += ", with more host memory (--memory MIB) or with less need of GPU memory"
    return f"{how}: pellucid submit --again {job.job_id}{alone} -- COMMAND"


def _remedy(job: Explanation) -> str:
    """Return as text what would help a job; "" where nothing would, or this version does not know
    the reason."""
    code = job.principal[0].remedy if job.principal else ""
    return next_step(Reason(code)) if code in {*Reason} else ""


def offer_words(one: WhatIfAnswer, now: float) -> str:
    """Return a suggested change in words: its effect, how often suggestions of its kind came true,
    and the command that makes it.
    """
    record = record_words(one.held, one.judged)
    how = f": {one.command}" if one.command else ""
    return f"{one.words}, {one.contract(now)}{f' ({record})' if record else ''}{how}"


def _believed(about: _About) -> _Rows:
    job = about.job
    if job is None or job.belief is None:
        return
    if about.depth is Depth.BRIEF:
        if not about.over and not about.never:
            yield "Prediction", guessed_words(job.belief)
    else:
        values = {one.term: one.value for one in job.contributions}
        yield "Prediction", belief_words(job.belief, values, job.prediction)


def _packed(about: _About) -> _Rows:
    found = about.job.packing if about.job is not None else None
    if found is None:
        return
    text = f"With job {found.partner}"
    if found.speed is not None:
        alone = f"this job is predicted to run at {found.speed:.0%} of its speed alone"
        text += f": {alone}, the other job at {found.partner_speed:.0%}"
    yield "Shares GPUs", f"{text}."
    for why in (gain_words(found), *path_words(found)):
        yield " because", why


def path_words(found: Packing) -> list[str]:
    """Return in words the steps that led to the predicted speeds of a pair. Each begins with the
    job that it is about, except steps about this job where it came to the other's GPUs."""
    whose = ("", "partner: ") if found.newcomer else ("newcomer: ", "this job: ")
    return [comparison(_step_of(one), *whose) for one in found.path]


def _step_of(one: PathStep) -> TreeStep:
    if one.score is not None:
        text = f"sharing score {one.score} ({SCORES[one.score]})"
        return TreeStep(one.of_partner, text, score=one.score)
    if one.speed is not None:
        text = corrected_step(one.speed) if one.corrected else speed_step(one.speed)
        return TreeStep(one.of_partner, text, speed=one.speed, corrected=one.corrected)
    if one.cut is None:
        return TreeStep(one.of_partner, one.note)
    value = WITHHELD if one.withheld else MISSING if one.value is None else f"{one.value:.6g}"
    text = f"{one.feature} {value} {'<=' if one.at_most else '>'} {one.cut:.6g}"
    compared = (one.feature, one.value, one.at_most, one.cut)
    return TreeStep(one.of_partner, text, compared=compared, withheld=one.withheld)


def _left_out(about: _About) -> _Rows:
    for what in about.wait.not_examined if about.wait is not None else ():
        yield "Not examined", f"{what}."
    found = about.job.analysis if about.job is not None and about.in_slurm is None else None
    if found is not None and found.unavailable:
        yield "Not examined", f"which jobs and nodes are in its way: {found.unavailable}."


# by kind: from which depth on it is shown, and its words; in this order
_SAYS: tuple[tuple[str, Depth, Callable[[_About], _Rows]], ...] = (
    ("dominant", Depth.LINE, _first),
    ("start", Depth.WHOLE, _start),
    ("times", Depth.WHOLE, _times),
    ("hold", Depth.BRIEF, _hold),
    ("slurm", Depth.WHOLE, _slurms),
    ("detail", Depth.WHOLE, _detail),
    ("in_the_way", Depth.BRIEF, _way),
    ("otherwise", Depth.WHOLE, _otherwise),
    ("nodes", Depth.WHOLE, _nodes),
    ("place", Depth.WHOLE, _placed),
    ("latest", Depth.WHOLE, _latest),
    ("wait", Depth.WHOLE, _waited),
    ("promised", Depth.WHOLE, _promised),
    ("overtaken", Depth.BRIEF, _overtaken),
    ("promise", Depth.WHOLE, _promise),
    ("history", Depth.WHOLE, _history),
    ("changed", Depth.BRIEF, _changed),
    ("sharing", Depth.WHOLE, _sharing),
    ("earlier", Depth.WHOLE, _earlier),
    ("suggestions", Depth.BRIEF, _could),
    ("belief", Depth.BRIEF, _believed),
    ("packing", Depth.WHOLE, _packed),
    ("not_examined", Depth.WHOLE, _left_out),
)


def first_words(job: Explanation) -> str:
    """Return the present state of a job, and why, in a sentence without its subject: the first of
    its findings. Return "" without findings."""
    return finding_words(job, job.principal[0]) if job.principal else ""


def finding_words(job: Explanation, one: Finding) -> str:
    """Return a finding of a job in a sentence without its subject."""
    over = job.times.ended_at is not None and job.phase != Phase.REFUSED
    if over and one is job.principal[0]:
        detail = job.detail if job.slurm is None or job.slurm.code else ""
        return f"{_ended(job, one)}{f' ({detail})' if detail else ''}"
    if job.slurm is not None and not over:
        return headline(job.slurm, job.job_id, job.at)
    if one.reason == Reason.NOT_YET_EVALUATED and not one.action:
        busy = f": the decider {job.busy}" if job.busy else ""
        return job.detail or f"not evaluated yet{busy}"
    text = decision_words(one, job.job_id)
    return text if one.shares is None else has_gpus(text, one.shares)


def _ended(job: Explanation, one: Finding) -> str:
    if one.decided:
        return decision_words(replace(one, reason=one.decided), job.job_id)
    times = job.times
    ran_s = None
    if times.started_at is not None and times.ended_at is not None:
        ran_s = max(times.ended_at - times.started_at, 0.0)
    return how_it_ended(
        phase=job.phase,
        state=job.state,
        ran_s=ran_s,
        waited_s=job.waited_s or 0.0,
        gpus=job.gpus,
        exit_code=job.exit_code,
    )


def dominant(found: Analysis) -> str:
    """Return the policy's last decision about the job as a sentence, with the present numbers. A
    reason that this version does not know is given by its name.
    """
    if found.reason not in {*Reason}:
        return phrase(found.reason)
    stands = Decision(
        seq=0,
        time=found.at or 0.0,
        action=Action.WAIT,
        reason=Reason(found.reason),
        job_id="",
        vc=found.vc,
        need=found.need,
        free=found.free,
        limit=found.limit,
        position=found.position,
        evidence=(("closed_gpus", found.closed),),
    )
    return sentence_of(stands)


def in_the_way(found: Analysis, *, recorded: bool = False) -> str:
    """Return in a few sentences which runs, jobs and nodes a waiting job waits for. With
    `recorded`, the numbers are those of a past time.
    """
    if found.reason == Reason.VC_TOO_SMALL:
        return f"It {dominant(found)}."
    numbers = f"It needs {count(found.need or 0, 'GPU')}; {_counts(found, recorded=recorded)}."
    if not found.groups:
        if not found.still:
            return f"{numbers} What holds it up was not found."
        why = even_then(found.still)
        return f"{numbers} Even with nothing in its way it would not start yet: {why}."
    without = listed([_group(one, found.at or 0.0) for one in found.groups])
    ended = all(one.kind == RUN for one in found.groups)
    when = f"if {without} ended" if ended else f"without {without}"
    return f"{numbers} It would start {when} (tried on a copy)."


def _counts(found: Analysis, *, recorded: bool = False) -> str:
    """Return how many of the GPUs that the job may use are free, kept, lent or closed: "2 of 16 are
    free now, 2 of them kept for another job, 8 are closed".
    """
    free = found.free or 0
    verb, when = (were, "then") if recorded else (are, "now")
    text = f"{free} of {found.limit} {verb(free)} free {when}"
    if found.reason == Reason.GPUS_FRAGMENTED and free >= (found.need or 0):
        text += ", but spread over too many nodes"
    if found.kept:
        which = "all" if found.kept == free else str(found.kept)
        many = f", {which} of them kept for another job"
        text += many if free > 1 else ", but kept for another job"
    if found.lent:
        text += f", {found.lent} more {verb(found.lent)} lent to profile new jobs"
    if found.closed:
        text += f", {found.closed} {verb(found.closed)} closed"
    return text


def otherwise(found: Analysis) -> str:
    """Return how many other jobs could end, or nodes be opened, instead of what is named, so that
    the job starts. Return "" without any.
    """
    if found.instead:
        few, many = min(map(len, found.instead)), max(map(len, found.instead))
        who = count(many, "other job") if few == many else f"{few}-{many} other jobs"
        ways = f" ({found.ways} such groups)" * (found.ways > 1)
        return f"The end of {who} would do as well{ways}."
    nodes = sum(one.kind == NODE for one in found.either)
    jobs, texts = found.alternatives - nodes, list[str]()
    if jobs:
        texts.append(f"The end of {_any_of(jobs, 'other job')} would do as well.")
    if nodes:
        which = "other node" if any(one.kind == NODE for one in found.holders) else "closed node"
        texts.append(f"Opening {_any_of(nodes, which)} would do as well.")
    return " ".join(texts)


def _any_of(many: int, what: str) -> str:
    return f"one {what}" if many == 1 else f"any of {count(many, what)}"


RUN, AHEAD, NODE = "running job", "waiting job", "closed node"
WHAT = {RUN: RUN, AHEAD: AHEAD, "reservation": "job that GPUs are kept for"}


def _group(group: Group, at: float) -> str:
    """Return in words the members of a group of one kind, for which a job waits: "2 running jobs of
    others (the last should end in 3 h)".
    """
    if group.kind == NODE:
        few = len(group.shown) == group.count
        nodes = [node_words(one, at) for one in group.shown]
        return listed(nodes) if few else f"{group.count} closed nodes"
    text = _who(group)
    if group.kind != RUN:
        return text
    late = "past its prediction, " * bool(group.past_s)
    last = ("the last, " if late else "the last ") * (group.count > 1)
    return f"{text} ({last}{late}should end in {roughly(group.ends_in_s or 0.0)})"


def node_words(one: InTheWay, at: float) -> str:
    """Return a closed node in words, with who drained it and which of its GPUs fail. Return only
    its name if this is unknown.
    """
    if one.closed is None:
        return f"node {one.node}, which is closed"
    return closed_node(one.closed, at)


def closed_node(node: ShutNode, at: float) -> str:
    """Return a closed node with the reason as text: "node n3, drained by ada: fan broken"."""
    silent = [(one.gpu, one.since, one.why) for one in node.silent]
    parts = [drained_words(node.actor, node.why) if node.drained else ""]
    parts.append(closed_words(silent, node.gpus, at))
    named = node.name if node.name.startswith("node") else f"node {node.name}"
    return f"{named}, {'; '.join(filter(None, parts))}"


def _who(group: Group) -> str:
    """Return the names of the jobs in a group if the group is small and the viewer may see them.
    Otherwise return their number.
    """
    what, hidden = WHAT[group.kind], group.count - group.named
    if not group.named:
        return count(hidden, f"{what} of others")
    whats = count(group.named, what).split(" ", 1)[1]
    if len(group.shown) == group.named:
        who = f"{whats} {listed([one.job for one in group.shown])}"
    elif group.kind == AHEAD:
        return count(group.count, what)
    else:
        who = f"{group.named:,} {whats}" + " of yours" * bool(hidden)
    return who + f" and {hidden:,} of others" * bool(hidden)


def place(found: Analysis) -> str:
    """Return a waiting job's position in its queue as text, with the terms of its order value."""
    if found.position is None:
        return "It is in no queue yet."
    text = f"Number {found.position:,} of {found.waiting:,} in virtual cluster {found.vc}"
    terms = [f"{term.what} {signed(term.seconds)}" for term in found.order if term.seconds]
    if found.priority:
        terms.insert(0, f"priority {found.priority}")
    curve = any(term.what.endswith(ON_THE_MEAN) and term.seconds for term in found.order)
    more = f" {ONE_CURVE}" if curve else ""
    if not terms:
        return f"{text}."
    return f"{text}. The line is ordered by this sum, smallest first: {', '.join(terms)}.{more}"


def promise(found: Analysis) -> str:
    """Return as text when the scheduler will reserve GPUs for a waiting job, and the conditions, or
    which it has reserved. Return "" if the policy promises none.
    """
    if found.reserved is not None and found.reserved.own:
        return _kept(found.reserved, found.bound)
    promise = found.bound
    if promise is None:
        closed = "No GPUs are kept for it while those that it would need are closed to new jobs."
        return closed if found.shut else ""
    text = f"{duration(promise.bound_s)} after its submission"
    if promise.demand > 1:
        times = f"jobs ask for {promise.demand:.1f} times the GPUs it may run on"
        text = f"not {text} but longer: {times}"
    if promise.left_s <= 0:
        when = "as its turn comes among the jobs that have waited so long"
    elif promise.left_s <= promise.soonest_s:
        when = f"in {duration(promise.left_s)}"
    else:
        when = f"in {duration(promise.left_s)} at the latest"
    answer = (
        f"As things stand, GPUs will be kept for it {when} ({text}; later if more is asked for "
        "meanwhile). It then still waits for the jobs that run on those GPUs to end."
    )
    if promise.priced_s is None or when.startswith("as ") or promise.left_s <= promise.soonest_s:
        return answer
    if promise.costs_s is not None:
        return answer + (
            f" It has waited longer than {duration(promise.priced_s)}, the bound after which it "
            "could go first, but other jobs would then wait "
            f"{duration(promise.costs_s)} longer, added up. That is computed again in "
            f"{duration(promise.soonest_s)}."
        )
    return answer + (
        f" They will be kept for it sooner, in {duration(promise.soonest_s)}, if that makes the "
        "other jobs wait little longer."
    )


def _kept(kept: Kept, promise: Promise | None) -> str:
    """Return as text how many GPUs are reserved for this job, and how many of them running jobs
    still hold. If the bound of `promise` has not passed, add that they are reserved only as long as
    the job is the first in line.
    """
    held = kept.gpus - kept.free
    busy = f"{held} of them still in use" if held else "all of them free"
    if held and kept.free_in_s is not None:
        last = "the last " * (kept.runs > 1)
        ends = f"{last}should end in {roughly(kept.free_in_s)}"
        busy += f" by {count(kept.runs, 'running job')} ({ends})"
    return (
        f"{count(kept.gpus, 'GPU')} {are(kept.gpus)} kept for it, {busy}. "
        "No other job starts on them that is likely to keep it waiting"
        + (", as long as it is the first in line." if promise and promise.left_s else ".")
    )


def sharing(found: NotShared) -> str:
    """Return as text why the job does not share GPUs with the running job that was the best
    candidate.
    """
    text = "It shares no GPUs with a running job. "
    if found.refused == Reason.KEEPS_OTHERS_OUT and found.hold and found.gain_s:
        hold = found.hold
        return (
            text + f"With the one that suits it best it would save {duration(found.gain_s)}. But "
            f"the two would hold {count(hold.gpus, 'GPU')} for {duration(hold.longer_s)} longer, "
            f"and the {count(hold.kept_out, 'job')} ahead of it would wait "
            f"{duration(hold.costs_s)} longer, added up."
        )
    if found.refused != Reason.INTERFERENCE_GUARD:
        why = _REFUSED.get(found.refused, phrase(found.refused))
        return text + f"The one that came closest to suiting it is ruled out: {why}."
    if found.speeds is None:
        return (
            text + "Even beside the one that suits it best, the two are predicted to be too slow."
        )
    own, other = found.speeds
    text += (
        f"Beside the one that suits it best it would run at {own:.0%} of its speed alone and the "
        f"other at {other:.0%}"
    )
    costs = found.gain_s is not None and found.gain_s <= 0
    return text + (": that would cost more time than it saves." if costs else ": too slow.")


# every answer of `rules.may_share`, and a reason of a policy's own
_REFUSED: dict[str, str] = {rule.reason.value: text for rule, text in SHARING.items()}
_REFUSED[Reason.PRIORITY_RATIO] = "this job's predicted GPU-time is too large beside the other's"


def moved_words(found: MovedStart, now: float, most: int | None = None) -> str:
    """Return as text how much the forecast start has changed, and why: "40 min later than foreseen
    3 h ago: ...".

    Args:
        most: name at most this many causes, those with the largest effect first. None: all.
    """
    way = "later" if found.by_s > 0 else "earlier"
    text = (
        f"Its start is now expected {duration(abs(found.by_s))} {way} than foreseen "
        f"{roughly(now - found.since)} ago"
    )
    if found.by_s <= 0:
        return f"{text}."
    if not found.causes:
        return f"{text}; no single cause was found."
    return f"{text}: {listed([cause_words(cause) for cause in found.causes[:most]])}."


def cause_words(cause: Cause) -> str:
    """Return as text one cause by which a forecast start has changed: "3 jobs submitted later are
    ahead of it in line".
    """
    if cause.kind == "closed":
        return f"GPUs of {count(cause.count, 'node')} are closed"
    if cause.kind == "outlived":
        runs = "runs" if cause.count == 1 else "run"
        return f"{count(cause.count, 'running job')} {runs} longer than predicted"
    where = "ahead of it in line" if cause.kind == "ahead" else "running"
    return f"{count(cause.count, 'job')} submitted later {are(cause.count)} {where}"


def rests_on(history: Known) -> str:
    """Return as text the history behind a prediction: "ada's jobs named like train: 4.2 jobs that
    have ended, ... Of the next, half last over 25 min, ...".
    """
    return f"{history.of}: {known_words(history)} {next_words(history.next)}"


def known_words(history: Known) -> str:
    """Return as text how many jobs a history holds, weighted by age: "18.0 jobs that have ended,
    and 2.0 that still run, where older jobs count less than 1.". Say so if there are none.
    """
    if history.ended < 0.05 and history.reached < 0.05:
        return "No such job was seen yet, so the wider group's history is used."
    runs = max(0.0, history.reached - history.ended)
    going = f", and {runs:.1f} that still run" if runs >= 0.05 else ""
    return f"{history.ended:.1f} jobs that have ended{going}, where older jobs count less than 1."


SHOWN_ODDS = 0.005  # below it, and above the rest, a chance is not written


def next_words(found: Next, outlived_s: float = 0.0) -> str:
    """Return as text the durations that a history predicts: "Of the next, half last over 25 min,
    one in ten over 6 h; of a hundred, 31 over 1 h.".
    """
    who = f"Of those that run over {duration(outlived_s)}" if outlived_s > 0 else "Of the next"
    text = f"{who}, half last over {duration(found.p50_s)}, one in ten over {duration(found.p90_s)}"
    odds = [
        f"{100 * chance:.0f} over {duration(seconds)}"
        for seconds, chance in found.odds
        if SHOWN_ODDS <= chance <= 1.0 - SHOWN_ODDS
    ]
    return f"{text}; of a hundred, {listed(odds)}." if odds else f"{text}."


def even_then(code: str) -> str:
    """Return as text why a job does not start although enough GPUs are free and no other job or
    node blocks it.
    """
    return _EVEN_THEN.get(code, "the policy would keep it waiting")


_EVEN_THEN: dict[str, str] = {
    Reason.NEXT_ROUND: "this policy decides in rounds, and the next has not begun",
    Reason.FASTER_GPUS_SOON: "it is expected to end sooner by waiting for faster GPUs",
    Reason.NO_MATCHING_GPU_TYPE: "no node has the GPU type it asks for",
    Reason.INVALID_REQUEST: "it asks for more than there is",
    Reason.VC_TOO_SMALL: "its virtual cluster has fewer GPUs than it asks for",
    Reason.INFEASIBLE: "no allocation meets what is asked of this policy",
}


# --- beside tables -------------------------------------------------------------------------------


def of_partitions(answer: Eta) -> list[str]:
    """Return the lines printed below the table of partitions of `pellucid eta`: the partitions that
    the job asks for (if several), those not tried, what Pellucid's own policy would do, and those
    that refuse the job.
    """
    found = []
    if len(answer.asked) > 1:
        names = ", ".join(answer.asked)
        found.append(f"It asks for {names}: it starts in the one that can start it first.")
    if answer.not_tried:
        names = ", ".join(answer.not_tried)
        found.append(f"Not tried, as the time for this answer was over: {names}.")
    if answer.own:
        found.append(f"Pellucid: {answer.own}")
    return found + [f"Not in {one.partition}: it {one.why}." for one in answer.closed]


def tried_by(offers: Sequence[Tried]) -> str:
    """Return as text how suggested changes were tried: on a copy of the queue, or also by Slurm.
    Return "" without suggestions.
    """
    both, copy = sum(one.by_slurm for one in offers), "tried on a copy of the queue"
    if not both:
        return f"{copy} alone" if offers else ""
    some = "" if both == len(offers) else f" ({both} of {len(offers)})"
    return f"{copy} and by sbatch --test-only{some}"


def of_nodes(answer: ByNode) -> list[str]:
    """Return the line printed below the table of nodes: how many more nodes can never take the job.
    Return [] if there are none.
    """
    more = count(answer.unsuited, "more node")
    return [f"{more} could never run it, even when empty."] if answer.unsuited else []


def of_causes(found: Causes) -> str:
    """Return the line printed above the table of causes: how many jobs wait, and how many GPUs they
    ask for.
    """
    if not found.waiting:
        return "No job waits."
    wait = "waits" if found.waiting == 1 else "wait"
    return f"{count(found.waiting, 'job')} {wait}, for {count(found.gpus, 'GPU')} in all."


WAITED_FOR = "The jobs for whose end, or start, most of them wait:"


def of_places(compared: Compared) -> list[str]:
    """Return lines that say which of two jobs goes first, and why."""
    job, other = compared.job_id, compared.other
    if compared.unavailable:
        return [f"{job} cannot be compared with {other}: {compared.unavailable}"]
    if compared.early_s is not None:
        return [f"{other} went before {job}: {compared.why}."]
    goes = "went" if compared.started else "goes"
    before = f"{other} {goes} before {job}" if compared.first else f"{job} goes before {other}"
    began = [f"It could start because: {compared.started}."] if compared.started else []
    return [f"{before}: {compared.why}.", *began]
