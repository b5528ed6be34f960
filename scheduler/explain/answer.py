"""Why a job waits, as the analyst writes it and everybody reads it: fields hold data, and beside
them the sentences that `explain.findings` makes of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InTheWay:
    """One thing without which, and without the others named with it, the job starts (tried).

    Attributes:
        kind: running job, waiting job, reservation, or closed node.
        job: its id; "" where it is another's, or a node.
        closed: of a closed node: its name, who drained it and why, in words.
        ran_s, past_s: of a run: how long it has run, and how far past its prediction.
        ends_in_s: of a run: seconds until it has ended, with even odds.
    """

    kind: str
    job: str = ""
    node: int | None = None
    closed: str = ""
    ran_s: float | None = None
    past_s: float | None = None
    ends_in_s: float | None = None


@dataclass(frozen=True, slots=True)
class OrderTerm:
    """A term of a job's place in line, seconds: the smaller sum goes first."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WaitAnalysis:
    """Why it waits at this moment, tried on a copy of the core.

    Attributes:
        at: that moment, seconds since the epoch; `need`, `free`, `limit` are GPUs at it.
        reason: code of what the policy decided last; `dominant`: in words, with the numbers of now.
        holders: the smallest set found without which it starts, of `in_all` the first 100;
            `in_the_way`: in words. `otherwise`: what would do as well, in words.
        either: others of which a single one would do as well, of `alternatives` the first 100.
        instead: sets of other runs of which each would do in the place of the runs that hold it up.
        still: with everything out of its way, why it would wait even then; "" where it starts.
        position, waiting: place in line, from 1, and how many stand in it; None: in no line.
        order: terms of its place; `place`: the same in words.
        bound_s: seconds until GPUs are kept for it, as things stand; None: nothing is promised.
        promise: the same in words, with its condition.
        changed: how its start has moved since it was submitted, and by what (undone on a copy); ""
            where it has not. `changed_much`: in short, where it has by ten minutes
            and a quarter of what is left.
        sharing: why it does not share GPUs of the run that came closest; "" where none did.
        rests_on: the history that its predicted duration rests on, in words.
        not_examined: what was left out.
        unavailable: why there is no analysis.
        seq: the last event of the log that was known then.
    """

    at: float | None = None
    reason: str = ""
    dominant: str = ""
    need: int | None = None
    free: int | None = None
    limit: int | None = None
    holders: tuple[InTheWay, ...] = ()
    in_all: int = 0
    either: tuple[InTheWay, ...] = ()
    alternatives: int = 0
    instead: tuple[tuple[InTheWay, ...], ...] = ()
    still: str = ""
    in_the_way: str = ""
    otherwise: str = ""
    position: int | None = None
    waiting: int | None = None
    order: tuple[OrderTerm, ...] = ()
    place: str = ""
    bound_s: float | None = None
    promise: str = ""
    changed: str = ""
    changed_much: str = ""
    rests_on: str = ""
    sharing: str = ""
    not_examined: tuple[str, ...] = ()
    unavailable: str = ""
    seq: int | None = None
