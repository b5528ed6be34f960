"""Decisions, times, durations and numbers as text for people."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from features.clock import LAST_S
from features.progress import Progress
from scheduler.core.decisions import AHEAD, ANOTHER, Action, Decision, Reason
from scheduler.core.phase import Phase
from scheduler.core.plural import count
from scheduler.core.tree_steps import TreeStep
from scheduler.explain.reasons import fields_in_sentence, next_step, sentence, short_reason

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
AT_ONCE_S = 1.0  # what comes sooner comes at once
MOSTLY = "nine times in ten"  # of a 90th percentile
_UNITS = (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1.0))


def duration(seconds: float | None) -> str:
    """Return seconds in at most two units: "93 s", "3 min 20 s", "35 min", "3 h 35 min", "2 d 4
    h". Return "unknown" for None and for an infinite value.
    """
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 120:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds) if seconds < 600 else 60 * round(seconds / 60)
    for i, (unit, size) in enumerate(_UNITS[:-1]):
        if whole >= size:
            small, step = _UNITS[i + 1]
            big, rest = divmod(whole, int(size))
            rest = 0 if unit == "min" and big >= 10 else round(rest / step)
            if rest * step >= size:  # 59.6 min is an hour
                big, rest = big + 1, 0
            return f"{big} {unit} {rest} {small}" if rest else f"{big} {unit}"
    return f"{whole} s"


def progress_words(progress: Progress | None, unread: str = "") -> str:
    """Return the duration that a job reports by its progress, as text: "its own progress says 90
    epochs of 480 s: 12 h in all, nine times in ten between 11 h 40 min and 12 h 25 min". Return
    "" if the job reports none.

    Args:
        unread: why the progress could not be read; "" if it was read.
    """
    if unread:
        return f"its own progress is not known: {unread}"
    if progress is None:
        return ""
    total, low, high = map(duration, (progress.total_s, progress.low_s, progress.high_s))
    text = f"its own progress says {progress.text()}: {total} in all"
    return f"{text}, nine times in ten between {low} and {high}"


def roughly(seconds: float) -> str:
    """Return seconds in one unit: "47 min", "1.9 h", "3 d"."""
    if not math.isfinite(seconds):
        return "unknown"
    unit, size = next(((u, s) for u, s in _UNITS if seconds >= 0.95 * s), _UNITS[-1])
    return (
        f"{seconds / size:.2g} {unit}" if seconds / size < 9.5 else f"{seconds / size:.0f} {unit}"
    )


def signed(seconds: float) -> str:
    """Return a number of seconds with its sign as text: "+25 min", "-8 min"."""
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"


def clock(seconds: float) -> str:
    """Return a time span with its sign, to the second: "+5d 11:25:20", "+00:03:20"."""
    sign = "-" if seconds < 0 else "+"
    whole = round(abs(seconds))
    days, rest = divmod(whole, int(DAY_S))
    hours, rest = divmod(rest, 3600)
    text = f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{sign}{days}d {text}" if days else f"{sign}{text}"


def moment(epoch_s: float | None, *, zone: bool = False) -> str:
    """Return a time as a UTC date and time to the second: "2026-11-20 08:00:00". Return "never" for
    None.
    """
    if epoch_s is None:
        return "never"
    text = datetime.fromtimestamp(round(epoch_s), UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{text} UTC" if zone else text


def number(value: float | None) -> str:
    """Return a number as text, with a comma between thousands and about four significant digits.
    Return "–" for None or an infinite value.
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    size = abs(value)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}"


def factor(value: float) -> str:
    """Return a multiplier: "×0.40", "×12"."""
    if value >= 100 or (value < 0.01 and value > 0):
        return f"×{value:.2g}" if value < 1e4 else f"×{value:.1e}"
    return f"×{value:.2f}" if value < 10 else f"×{value:.0f}"


def percent(share: float) -> str:
    """Return a share (0 to 1) as text in percent: "42 %". Shares below 10 % keep one decimal."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 9.95 or value == 0 else f"{value:.1f} %"


def drained_words(actor: str = "", reason: str = "", then: str = "") -> str:
    """Return as text who drained a node and why. `then` says what happens to the node once no job
    runs on it.
    """
    by = f" by {actor}" if actor else ""
    why = f": {reason}" if reason else ""
    return f"drained{by}{why}" + (f"; {then} once nothing runs there" if then else "")


def closed_words(closed: Iterable[tuple[int, float, str]], gpus: int, now: float) -> str:
    """Return as text which GPUs of a node do not answer: "7 of 8 GPUs answer; GPU 3 does not since
    16:02: the GPU is lost". Return "" if all answer.

    Args:
        closed: of each such GPU, its index, the time since it does not answer (seconds since the
            epoch), and the reason.
        gpus: number of GPUs of the node.
    """
    ones = sorted(closed)
    if not ones:
        return ""
    alike: dict[tuple[str, str], list[str]] = {}
    for gpu, since, why in ones:
        alike.setdefault((clock_time(since, now), why), []).append(str(gpu))
    silent = [
        f"GPU {which[0]} does not since {since}: {why}"
        if len(which) == 1
        else f"GPUs {listed(which)} do not since {since}: {why}"
        for (since, why), which in alike.items()
    ]
    left = gpus - len(ones)
    verb = "answers" if left == 1 else "answer"
    return "; ".join([f"{left} of {count(gpus, 'GPU')} {verb}", *silent])


def listed(items: list[str]) -> str:
    """Return items as a list in words: "a, b and c"."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def sentence_of(d: Decision) -> str:
    """Return a decision as a sentence, with the jobs it waited for. Jobs whose ids are hidden from
    the viewer are not named.
    """
    return sentence(d, _named(d)) + held_words(d)


def fields_worded(d: Decision) -> frozenset[str]:
    """Return the names of the values that `sentence_of` mentions, as `fields_in_sentence` does."""
    return fields_in_sentence(d, _named(d))


def _named(d: Decision) -> set[str]:
    return {job for job in (d.blocker, d.partner) if job not in (None, AHEAD, ANOTHER)}


CANCELLED = "was cancelled after waiting {waited}"
LOST = "was lost: how it ended is unknown, and it is not run again"


def how_it_ended(
    phase: str,
    state: str,
    *,
    ran_s: float | None,
    waited_s: float,
    gpus: int,
    exit_code: int | None,
) -> str:
    """Return how a job ended, as a sentence without its subject.

    Args:
        ran_s: seconds that it ran; None: it never ran.
        waited_s: seconds that it waited.
    """
    waited = duration(waited_s)
    if phase == Phase.LOST:
        return LOST
    if phase == Phase.CANCELLED:
        if ran_s is None:
            return CANCELLED.format(waited=waited)
        return f"was cancelled after running {duration(ran_s)}; it had waited {waited}"
    if ran_s is None:
        return f"{ended(state)} after {waited}, before it ran"
    status = f"; exit status {exit_code}" if exit_code else ""
    where = " on GPUs" if gpus else ""
    return f"{ended(state)} after {duration(ran_s)}{where}; it had waited {waited}{status}"


class SharesGpus(Protocol):
    """How a running job shares its GPUs now.

    Attributes:
        partner: the job that it shares them with; None: no job.
        seconds: how long this has been so.
        came: whether it was started on GPUs that another job was using; `to` is that job.
    """

    @property
    def partner(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def came(self) -> bool: ...
    @property
    def to(self) -> str | None: ...


def has_gpus(began: str, now: SharesGpus) -> str:
    """Return why a running job has its GPUs, and with which job it shares them now.

    Args:
        began: the words of its start.
    """
    named = ANOTHER if now.partner in (ANOTHER, None) else f"job {now.partner}"
    if not now.came:
        since = f"{began} when it started; {named} has shared them for {duration(now.seconds)}"
        return began if now.partner is None else since
    if now.partner is None:
        return (
            "started on GPUs that another job was using, and has had them alone since that job left"
        )
    return began if now.to in (None, now.partner) else f"shares its GPUs with {named}"


NAMED = 3  # jobs in a sentence


def held_words(d: Decision) -> str:
    """Return as text which jobs a decision to wait was waiting for, to be appended to its sentence.
    Return "" if the sentence names them already, or none is recorded.
    """
    if not d.held_by or d.action is not Action.WAIT or d.blocker in d.held_by:
        return ""
    named = [job for job in d.held_by if job not in (AHEAD, ANOTHER)]
    hidden, more = len(d.held_by) - len(named), len(named[NAMED:])
    others = [count(hidden, "job") + " of others"] if hidden else []
    others += [f"{more} more"] if more else []
    who = listed([f"job {job}" for job in named[:NAMED]] + others)
    if d.reason in (Reason.BEHIND_HIGHER_PRIORITY, Reason.NEXT_ROUND):
        return f"; next ahead of it in line was {who}" if named else ""
    if d.reason in (Reason.RESERVED_FOR_STARVING_JOB, Reason.WOULD_DELAY_FIRST):
        return f" ({who})" if named else ""
    gone_in_s = dict(d.evidence).get("gone_in_s")
    soon = f" (within {duration(float(gone_in_s))}, {MOSTLY})" if gone_in_s else ""
    ended = "has ended" if len(d.held_by) == 1 else "have ended"
    return f"; enough GPUs should be free when {who} {ended}{soon}"


def step_of(d: Decision) -> str:
    """Return as text what the owner of a decision's job could do next. Return "" if there is
    nothing."""
    return next_step(d.reason) if d.action in _ASKS_FOR_A_STEP else ""


_ASKS_FOR_A_STEP = (Action.WAIT, Action.REFUSE, Action.CANCEL)


def overtaking(
    action: Action, reason: Reason, *, ahead: bool, fewer: bool, shorter: bool | None = None
) -> str:
    """Return as text why a job that was submitted later got GPUs before a waiting job.

    Args:
        ahead: whether the later job stood before the waiting job in line; fewer: whether it asked
            for fewer GPUs.
        shorter: whether it was predicted to run for less time than the waiting job, as both were
            predicted then; None: not recorded.
    """
    if action is Action.PACK:
        return "shared the GPUs of a running job"
    if action is Action.PROFILE:
        return "ended during the short profiling run that new jobs get"
    if reason is Reason.BORROWED:
        return "ran on idle GPUs of another virtual cluster"
    if reason is Reason.BACKFILLED:
        return "ran on GPUs kept for a job that could not start yet"
    if reason is Reason.WAITED_TOO_LONG:
        return "had GPUs kept after a long wait"
    if ahead:
        if shorter is None:
            return "stood ahead of it in line"
        longer = "longer, but on fewer GPUs" if fewer else "longer"
        return f"stood ahead of it in line (predicted to run {'shorter' if shorter else longer})"
    return "asked for fewer GPUs" if fewer else "could start on GPUs that this job could not use"


def overtaken_words(by: Mapping[str, int]) -> str:
    """Return as text how many later jobs got GPUs before a waiting job, by reason. Return "" if
    none did.
    """
    if not by:
        return ""
    total = sum(by.values())
    ranked = sorted(by.items(), key=lambda item: -item[1])
    how = ranked[0][0] if len(ranked) == 1 else listed([f"{n:,} {why}" for why, n in ranked])
    jobs = f"{count(total, 'job')} submitted later got GPUs first"
    who = "" if len(ranked) > 1 else "it " if total == 1 else "each "
    return f"{jobs}: {who}{how}."


class Gains(Protocol):
    """The expected gain and cost of sharing GPUs, and the time that each of the two jobs would have
    left alone. All in seconds; None if unknown."""

    @property
    def gain_s(self) -> float | None: ...
    @property
    def left_s(self) -> float | None: ...
    @property
    def partner_left_s(self) -> float | None: ...
    @property
    def costs_s(self) -> float | None: ...


MEANS = (
    "These means decide, not the predicted durations: they count the few jobs that last very long."
)


NOT_WAITING = "It does not wait any more."
WAITS_FOR_ENDS = "other jobs have to end before it may start"
ON_THE_MEAN = "on the mean"  # of a term of the order: see `policies.pellucid.policy.order_terms`
ONE_CURVE = (
    "The mean may be longer than the time that half of such jobs run: the few that last very long "
    "lift it."
)


def shares_words(rival: str, sooner: float, later: float, later_s: float) -> str:
    """Return as text which shares of jobs end sooner and later than under a rival policy.

    Args:
        later_s: seconds that half of the later ones lose at least.
    """
    lost = f" Of the later ones half lose over {roughly(later_s)}." if later else ""
    return (
        f"Against {rival}, {percent(sooner)} of the jobs end sooner, {percent(later)} later, the "
        f"others at the same time.{lost}"
    )


def beyond_chance_words(shorter: str, longer: str) -> str:
    """Return as text for which groups of jobs the mean time to the end is shorter, and for which
    longer, than under a rival policy, beyond chance."""
    return f"Beyond chance the mean time to the end is shorter for {shorter}; longer for {longer}."


def gain_words(of: Gains) -> str:
    """Return as text the expected gain of sharing GPUs, and the two predicted times left that the
    gain is computed from. Return "" without a gain.
    """
    if of.gain_s is None:
        return ""
    own, other = duration(of.left_s), duration(of.partner_left_s)
    price = f"; other jobs wait {duration(of.costs_s)} longer, added up" if of.costs_s else ""
    how = "shorter" if of.gain_s >= 0 else "longer"
    return (
        f"With GPUs to themselves, this job would run for another {own} and the other for another "
        f"{other} (means of what is predicted). Sharing makes the sum of their times to the end "
        f"{duration(abs(of.gain_s))} {how} than if the later one waited{price}. "
        f"{MEANS}"
    )


def comparison(step: TreeStep, own: str = "", partner: str = "partner: ") -> str:
    """Return one step of the decision tree for a pair of jobs as text: "GPU utilisation 14 %, not
    above the limit of 43.6 %".

    Args:
        own: put before the text of a step about the new job.
        partner: put before the text of a step about its partner.
    """
    whose = partner if step.of_partner else own
    if step.speed is not None:
        by = ", corrected by what such pairs really ran" if step.corrected else ""
        return f"{whose}so the predicted speed is {percent(step.speed)} of the speed alone{by}"
    if step.compared is None or step.compared[0] not in _MEASURED:
        return f"{whose}{step.text}"
    name, seen, at_most, cut = step.compared
    what, unit = _MEASURED[name]
    if name == "amp":
        return f"{whose}{'no ' * at_most}{what}"
    limit = f"{'not above' if at_most else 'above'} the limit of {cut:.3g} {unit}"
    if step.withheld:
        return f"{whose}{what} is {limit}"
    value = "not measured, taken as" if seen is None else f"{seen:.3g} {unit},"
    return f"{whose}{what} {value} {limit}"


_MEASURED = {
    "gpu_util_pct": ("GPU utilisation", "%"),
    "gpu_mem_util_pct": ("memory utilisation", "%"),
    "gpu_mem_mib": ("GPU memory", "MiB"),
    "amp": ("mixed precision", ""),
    "gpu_util_minus_partner_pct": (
        "difference in GPU utilisation (own minus the other job's)",
        "points",
    ),
    "gpu_util_sum_pct": ("GPU utilisation of the two jobs added up", "%"),
    "gpu_mem_util_sum_pct": ("memory utilisation of the two jobs added up", "%"),
    "sm_active_sum_pct": ("activity of the GPU's cores (SMs) of the two jobs added up", "%"),
}


def phrase(code: str) -> str:
    """Return a reason code or state as a few words: "too few GPUs free", "other jobs go first",
    "node fail".
    """
    if short := short_reason(code):
        return short
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", code).lower()
    return re.sub(r"\bgpus?\b", lambda gpu: gpu[0].upper().replace("S", "s"), words)


def busy_words(whom: str, patience_s: float) -> str:
    """Return why a question has no answer yet, and what to do. `whom`: who was asked; "": the
    analyst, which computes forecasts."""
    who = f"the {whom}" if whom else "the process that computes forecasts"
    return f"{who} is busy: no answer within {patience_s:g} s; ask again"


YEAR_DAYS = 365


def clock_time(epoch_s: float, now: float) -> str:
    """Return a moment in this process's time zone: "16:40" today, "Tue 16:40" within the next six
    days, "3 Dec 16:40" within a year, otherwise "3 Dec 2030 16:40".
    """
    today = datetime.fromtimestamp(now)
    at = datetime.fromtimestamp(min(epoch_s, LAST_S))
    days = (at.date() - today.date()).days
    if abs(days) > YEAR_DAYS:
        return at.strftime("%-d %b %Y %H:%M")
    day = "" if days == 0 else at.strftime("%a ") if 0 < days < 7 else at.strftime("%-d %b ")
    return day + at.strftime("%H:%M")


def ended(state: str) -> str:
    """Return how a job ended, as words to be followed by a time: "ran out of memory".

    Args:
        state: a state of `features.schema.State`; "": not recorded.
    """
    return _ENDED.get(state, f"ended ({phrase(state)})" if state else "ended")


_ENDED: dict[str, str] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "was cancelled",
    "timeout": "reached its time limit",
    "node_fail": "was lost with its node",
    "out_of_memory": "ran out of memory",
    "preempted": "was stopped for another job",
    "running": "was last seen to run",
    "pending": "was last seen to wait",
    "unknown": "ended (how is not known)",
}


def act(action: str) -> str:
    """Return the words for an action, such as "waits" or "GPUs are kept"."""
    return _ACTS[Action(action)]


_ACTS = {
    Action.PROFILE: "is profiled",
    Action.ENQUEUE: "queued",
    Action.START: "starts",
    Action.PACK: "starts, sharing",
    Action.WAIT: "waits",
    Action.PREEMPT: "is stopped",
    Action.RESIZE: "other GPUs",
    Action.RETUNE: "other batch size",
    Action.RESERVE: "GPUs are kept",
    Action.REFUSE: "refused",
    Action.CANCEL: "cancelled",
    Action.LEND: "node lent",
    Action.RETURN: "node returned",
    Action.CHANGE_NODE: "node changed",
}


def event_words(kind: str) -> str:
    """Return the name of a kind of event as a person reads it. An unknown kind is returned
    unchanged.
    """
    return _EVENTS.get(kind, kind)


_EVENTS: dict[str, str] = {
    "submitted": "submitted",
    "cancel_asked": "asked to be cancelled",
    "priority_set": "priority changed",
    "held": "held",
    "released": "released",
    "changed": "changed",
    "started": "runs",
    "observed": "measured while running",
    "pair_observed": "speed beside its partner measured",
    "progress": "its own progress read",
    "unread": "its own progress not known",
    "profiled": "profiling run over",
    "ended": "ended",
    "lost": "lost",
    "not_started": "could not be started",
    "forecast": "forecast made",
    "scored": "its duration predicted",
}


def window(p50: float, p90: float | None, now: float) -> str:
    """Return as text how far a future time is away, from its median to its 90th percentile: "20 min
    to 1 h".
    """
    soon = duration(max(0.0, p50 - now))
    return soon if p90 is None else f"{soon} to {duration(max(0.0, p90 - now))}"


def end_words(p50: float | None, p90: float | None, past_s: float | None, now: float) -> str:
    """Return as text when a run is expected to end. If the run is longer than predicted, add by how
    much.
    """
    if p50 is None:
        return "its end is not foreseen"
    text = f"expected to end in {window(p50, p90, now)}"
    return f"{text}, {duration(past_s)} past its prediction already" if past_s else text


def expected_start(p50: float, p90: float | None, now: float) -> str:
    """Return as text in how much time a waiting job is expected to start."""
    return f"expected to start in {window(p50, p90, now)}"


def ends_words(ends_in_s: Sequence[float]) -> str:
    """Return as text when the first and the last of several runs are expected to end. Return ""
    without runs.

    Args:
        ends_in_s: seconds until each run should end, ascending.
    """
    if not ends_in_s:
        return ""
    text = f"The next is expected to end in {duration(max(0.0, ends_in_s[0]))}"
    return text + (
        f", the last in {duration(max(0.0, ends_in_s[-1]))}." if len(ends_in_s) > 1 else "."
    )


def hold_words(hold: str, by: str) -> str:
    """Return as text who holds a job: "held by its owner".

    Args:
        hold: "owner" or "operator"; by: the name of the operator; "": unknown.
    """
    return f"held by {'its owner' if hold == 'owner' else by or 'an operator'}"


class ForecastKind(StrEnum):
    """Kinds of start forecasts that are made without simulating futures."""

    CRUDE = "crude"
    IMPOSSIBLE = "impossible"  # it cannot start, for `why_not`


def starts(
    start_p50: float | None,
    start_p90: float | None,
    why_not: str,
    now: float,
    estimate: str | None = None,
    *,
    latest: float | None = None,
    no_latest: str = "",
    stated: float | None = None,
) -> str:
    """Return as text when a waiting job is expected to start: "starts about 16:40; by 18:10 nine
    times in ten". Without a median, return its latest start, or why the start is unknown.
    """
    if start_p50 is None and estimate == ForecastKind.IMPOSSIBLE:
        return why_not
    if start_p50 is None and latest is not None:
        return f"starts at the latest {bound_words(latest, stated, now)}"
    if start_p50 is None:
        kept = stated_words(stated, now)
        whys = (why_not or "no estimate was made yet", no_latest, kept)
        return f"its start is unknown: {'; '.join(filter(None, whys))}"
    text = f"starts about {clock_time(start_p50, now)}"
    if start_p90 is not None:
        text += f"; by {clock_time(start_p90, now)} {MOSTLY}"
    return f"{text} ({CRUDE})" if estimate == ForecastKind.CRUDE else text


def bound_words(latest: float, stated: float | None, now: float) -> str:
    """Return as text the latest start of a job. It follows from time limits, and from the ends that
    running jobs report: "16:52, if every job ...; by 16:40, if the running jobs end when their
    progress says (not guaranteed)".
    """
    text = f"{clock_time(latest, now)}, {LIMITS}"
    return "; ".join(filter(None, (text, stated_words(stated, now))))


def stated_words(stated: float | None, now: float) -> str:
    """Return as text the start of a job if running jobs end when their reported progress says.
    Return "" without such a time.
    """
    if stated is None:
        return ""
    return (
        f"by {clock_time(stated, now)}, if the running jobs end when their progress says {UNSURE}"
    )


UNSURE = "(not guaranteed)"
CRUDE = "crude: work ahead over GPUs"
LIMITS = "if all jobs ahead of it run to their time limits and none behind it starts first"
NEVER = "it cannot start: its virtual cluster has too few GPUs"


class NoAnswer(StrEnum):
    """Reasons why a question has no answer, with the words that say so."""

    OVER = "the job is over"
    NOT_LOOKED_AT = "no pass has looked at the job yet"
    NO_HISTORIES = "what decides here keeps no histories"


def no_vc(vc: str) -> str:
    """Return as text that no virtual cluster has this name."""
    return f"there is no virtual cluster {vc!r}"


def record_words(held: int, judged: int) -> str:
    """Return as text how many suggestions of a kind came true, of those that were tried: "31 of
    33 such suggestions came true". Return "" if none was tried.
    """
    return f"{held} of {judged} such suggestions came true" if judged else ""
