"""The one place where the answer to why a job waits is put into words: command line, pages, report
and benchmarks read its values by these sentences."""

from __future__ import annotations

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.obstacles import SHARING
from scheduler.core.plural import are, count, were
from scheduler.explain.answer import (
    Cause,
    Group,
    InTheWay,
    Kept,
    Known,
    MovedStart,
    Next,
    NotShared,
    ShutNode,
    WaitAnalysis,
)
from scheduler.explain.words import (
    closed_words,
    drained_words,
    duration,
    listed,
    phrase,
    roughly,
    sentence_of,
    signed,
)


def analysis_words(found: WaitAnalysis, *, recorded: bool = False) -> dict[str, str]:
    """Return all that an analysis says, by what it is about; "" where there is nothing to say.

    Args:
        recorded: the moment asked about is past.
    """
    at, much = found.at or 0.0, found.moved is not None and found.moved.considerable
    return {
        "dominant": dominant(found),
        "in_the_way": in_the_way(found, recorded=recorded),
        "otherwise": otherwise(found),
        "place": place(found),
        "promise": promise(found),
        "changed": moved_words(found.moved, at) if found.moved else "",
        "changed_much": moved_words(found.moved, at, 1) if found.moved and much else "",
        "sharing": sharing(found.not_shared) if found.not_shared else "",
        "rests_on": rests_on(found.history) if found.history else "",
    }


def dominant(found: WaitAnalysis) -> str:
    """Return what the policy decided last, with the numbers of now; of a reason that only a newer
    service knows, its name."""
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


def in_the_way(found: WaitAnalysis, *, recorded: bool = False) -> str:
    """Return what is in the way, in a few sentences."""
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
    when = f"if {without} ended" if ended else f"if not for {without}"
    return f"{numbers} It would start {when} (tried)."


def _counts(found: WaitAnalysis, *, recorded: bool = False) -> str:
    """Return what there is for it: "2 of 16 are free now, 2 of them kept for another job, 8 are
    closed"."""
    free = found.free or 0
    verb, when = (were, "then") if recorded else (are, "now")
    text = f"{free} of {found.limit} {verb(free)} free {when}"
    if found.kept:
        which = "all" if found.kept == free else str(found.kept)
        text += f", {which} of them kept for another job" if free > 1 else ", but kept"
    if found.lent:
        text += f", {found.lent} more {verb(found.lent)} lent for profiling"
    if found.closed:
        text += f", {found.closed} {verb(found.closed)} closed"
    return text


def otherwise(found: WaitAnalysis) -> str:
    """Return what would do as well as what is in the way; "" where nothing was found."""
    if found.instead:
        few, many = min(map(len, found.instead)), max(map(len, found.instead))
        who = count(many, "other") if few == many else f"{few}-{many} others"
        return f"{who} would do instead" + f" ({found.ways} ways)" * (found.ways > 1) + "."
    others = found.alternatives
    if not others:
        return ""
    who = "One other" if others == 1 else f"Any of {count(others, 'other')}"
    return f"{who} would do instead."


RUN, AHEAD, NODE = "running job", "waiting job", "closed node"
WHAT = {RUN: RUN, AHEAD: AHEAD, "reservation": "job that GPUs are kept for"}


def _group(group: Group, at: float) -> str:
    """Return things of one kind: "2 running jobs of others (the last should end in 3 h)"."""
    if group.kind == NODE:
        few = len(group.shown) == group.count
        nodes = [node_words(one, at) for one in group.shown]
        return listed(nodes) if few else f"{group.count} closed nodes"
    text = _who(group)
    if group.kind != RUN:
        return text
    last = "the last " * (group.count > 1)
    late = ", late" * bool(group.past_s)
    return f"{text} ({last}should end in {roughly(group.ends_in_s or 0.0)}{late})"


def node_words(one: InTheWay, at: float) -> str:
    """Return a closed node in the way, with what is known of it."""
    if one.closed is None:
        return f"node {one.node}, which is closed"
    return closed_node(one.closed, at)


def closed_node(node: ShutNode, at: float) -> str:
    """Return "node n3, drained by ada: fan broken"."""
    silent = [(one.gpu, one.since, one.why) for one in node.silent]
    parts = [drained_words(node.actor, node.why) if node.drained else ""]
    parts.append(closed_words(silent, node.gpus, at))
    return f"node {node.name}, {'; '.join(filter(None, parts))}"


def _who(group: Group) -> str:
    """Return jobs by name where they are few and may be named, else how many."""
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


def place(found: WaitAnalysis) -> str:
    """Return its place in line, and what puts it there."""
    if found.position is None:
        return "It is in no queue yet."
    text = f"Number {found.position:,} of {found.waiting:,} in {found.vc}"
    terms = [f"{term.what} {signed(term.seconds)}" for term in found.order if term.seconds]
    if found.priority:
        terms.insert(0, f"priority {found.priority}")
    return f"{text}: {', '.join(terms)}." if terms else f"{text}."


def promise(found: WaitAnalysis) -> str:
    """Return from when on GPUs are kept for it, with what that depends on; "" when nothing is."""
    if found.reserved is not None and found.reserved.own:
        return _kept(found.reserved)
    promise = found.bound
    if promise is None:
        closed = "No GPUs are kept for it while those that would hold it are closed."
        return closed if found.shut else ""
    text = f"{duration(promise.bound_s)} after its submission"
    if promise.demand > 1:
        times = f"{promise.demand:.1f} times the GPUs it may run on are asked for"
        text = f"not {text} but longer: {times}"
    if promise.left_s <= 0:
        when = "as the next of those"
    elif promise.left_s <= promise.soonest_s:
        when = f"in {duration(promise.left_s)}"
    else:
        when = f"in {duration(promise.left_s)} at the latest"
    answer = (
        f"As things stand GPUs are kept for it {when} ({text}; later if more is asked for "
        "meanwhile). A start then still waits for the jobs that run on them."
    )
    if promise.priced_s is None or when.startswith("as ") or promise.left_s <= promise.soonest_s:
        return answer
    if promise.costs_s is not None:
        return answer + (
            f" Not yet, though it has waited longer than {duration(promise.priced_s)}: that is "
            f"predicted to cost the others {duration(promise.costs_s)} of waiting in sum. Asked "
            f"again in {duration(promise.soonest_s)}."
        )
    return answer + (
        f" Sooner, in {duration(promise.soonest_s)}, if that costs the others little waiting."
    )


def _kept(kept: Kept) -> str:
    """Return that GPUs are kept for this job, and who is still on them."""
    held = kept.gpus - kept.free
    busy = f"{held} of them still busy" if held else "all of them free"
    if held and kept.free_in_s is not None:
        last = "the last " * (kept.runs > 1)
        ends = f"{last}should end in {roughly(kept.free_in_s)}"
        busy += f" with {count(kept.runs, 'running job')} ({ends})"
    return (
        f"{count(kept.gpus, 'GPU')} {are(kept.gpus)} kept for it, {busy}; "
        "no other job starts there that is likely to keep it waiting."
    )


def sharing(found: NotShared) -> str:
    """Return why it does not share the GPUs of the run that came closest."""
    text = "Of the running jobs whose GPUs it might share, "
    if found.refused == Reason.KEEPS_OTHERS_OUT and found.hold and found.gain_s:
        hold = found.hold
        return (
            text + f"the best would save {duration(found.gain_s)}. It would also hold "
            f"{count(hold.gpus, 'GPU')} for {duration(hold.longer_s)} longer, and cost the "
            f"{count(hold.kept_out, 'job')} before it {duration(hold.costs_s)} of waiting in sum."
        )
    if found.refused != Reason.INTERFERENCE_GUARD:
        why = _REFUSED.get(found.refused, phrase(found.refused))
        return text + f"the closest is out of the question: {why}."
    if found.speeds is None:
        return text + "the closest is predicted to interfere too much."
    own, other = found.speeds
    text += f"beside the best it would run at {own:.0%} and the other at {other:.0%} of full speed"
    costs = found.gain_s is not None and found.gain_s <= 0
    return text + (": that would cost more time than it saves." if costs else ": too little.")


# every answer of `rules.may_share`, and a reason of a policy's own
_REFUSED: dict[str, str] = {rule.reason.value: text for rule, text in SHARING.items()}
_REFUSED[Reason.PRIORITY_RATIO] = "this job's predicted GPU-time is too large beside the other's"


def moved_words(found: MovedStart, now: float, most: int | None = None) -> str:
    """Return how a start has moved: "40 min later than foreseen 3 h ago: ...".

    Args:
        most: causes that are named, those that move it most; None: all.
    """
    way = "later" if found.by_s > 0 else "earlier"
    text = f"{duration(abs(found.by_s))} {way} than foreseen {roughly(now - found.since)} ago"
    if found.by_s <= 0:
        return f"{text}."
    if not found.causes:
        return f"{text}; no single cause was found."
    return f"{text}: {listed([cause_words(cause) for cause in found.causes[:most]])}."


def cause_words(cause: Cause) -> str:
    """Return what has happened since a start was foreseen: "3 later jobs are before it"."""
    if cause.kind == "closed":
        return f"GPUs of {count(cause.count, 'node')} are closed"
    if cause.kind == "outlived":
        theirs = "has outlived its" if cause.count == 1 else "have outlived their"
        return f"{count(cause.count, 'run')} {theirs} prediction"
    where = "before it" if cause.kind == "ahead" else "running"
    return f"{count(cause.count, 'later job')} {are(cause.count)} {where}"


def rests_on(history: Known) -> str:
    """Return "ada's jobs named like train: 4.2 ended jobs ... Of the next, half last over 25 min
    ..."."""
    return f"{history.of}: {known_words(history)} {next_words(history.next)}"


def known_words(history: Known) -> str:
    """Return how much a history knows: "18 ended jobs, the older ones counting less."."""
    if history.ended < 0.05 and history.reached < 0.05:
        return "None of them was seen yet: it says what the wider group says."
    runs = max(0.0, history.reached - history.ended)
    going = f", and {runs:.1f} that run" if runs >= 0.05 else ""
    return f"{history.ended:.1f} ended jobs{going}, the older ones counting less."


SHOWN_ODDS = 0.005  # below it, and above the rest, a chance is not written


def next_words(found: Next, outlived_s: float = 0.0) -> str:
    """Return "Of the next, half last over 25 min, one in ten over 6 h; of a hundred, 31 over 1
    h."."""
    who = f"Of those that outlive {duration(outlived_s)}" if outlived_s > 0 else "Of the next"
    text = f"{who}, half last over {duration(found.p50_s)}, one in ten over {duration(found.p90_s)}"
    odds = [
        f"{100 * chance:.0f} over {duration(seconds)}"
        for seconds, chance in found.odds
        if SHOWN_ODDS <= chance <= 1.0 - SHOWN_ODDS
    ]
    return f"{text}; of a hundred, {listed(odds)}." if odds else f"{text}."


def even_then(code: str) -> str:
    """Return why a job does not start although it would fit and nothing is in its way."""
    return _EVEN_THEN.get(code, "the policy would keep it waiting")


_EVEN_THEN: dict[str, str] = {
    Reason.NEXT_ROUND: "this policy decides in rounds",
    Reason.FASTER_GPUS_SOON: "it is expected to end sooner by waiting for faster GPUs",
    Reason.NO_MATCHING_GPU_TYPE: "no node has the GPU type it asks for",
    Reason.INVALID_REQUEST: "it asks for more than there is",
    Reason.VC_TOO_SMALL: "its virtual cluster has fewer GPUs than it asks for",
    Reason.INFEASIBLE: "no allocation meets what is asked of this policy",
}
