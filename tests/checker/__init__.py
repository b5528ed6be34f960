"""Judges what clients of the service saw against what ran, by its documentation alone.

A history is a list of plain records, in the order in which they happened; it may come from a
simulation or from real processes. The rules stand in `docs/api.md` and
`docs/service-internals.md`; nothing of the service is imported here.

    begins    nodes (node, vc, gpus), lease_s, hangs_s, watchdog_s, folds_s, most_waiting: what
              the rules are about
    call      who asked for what (op, job, key, body), from `began` to `at`; status and answer;
              status None: no answer came, and nobody knows what was done
    began     an attempt of a job really runs: job, attempt, purpose, gpus (names), nodes
    ended     it does no more: exited, request (it was stopped), limit, lost,
              unknown (whoever stood by it died as it ended)
    over      a pass is in the log, which says that a job is over: job, phase
    stops     a backend was told to stop an attempt, and answered: job, attempt
    again     a backend tells again of an attempt that was over, of which it may say something else
    decides   the process `holder` decides, under `term`; said again at least every second
    wrote     events were committed under `term` of a lease by its holder; `seq`: of the first
    took      `holder` took a lease of another, `silent_s` after that renewed it; it holds `for_s`
    unfenced  the same as events are written under `term`, where `by` holds the lease under `now`
    started, died, frozen, clock, fault, power, ...   what happened to processes and machines
    restored  a machine was replaced, what ran there is not known; `seq`: of the log's last event,
              which is all that there is in the backup
    log       an event of the service's log: seq, kind, job, actor, cause, body
    decision  of a pass: event (its seq), job, action, nodes
    node      one of those there are when all is over: node, vc
    final     a job as the service shows it when all is over
    batch, batch_held, batch_said, ordered, update, row, batch_is   in front of Slurm: a job is
              submitted, held or given a comment by people; an ORDERED event is committed; a
              priority or comment is changed by the service; it is shown so; it is so in Slurm after
              the service was stopped, and began or ended last at `since`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.checker import answers, leadership, order, runs, slurm
from tests.checker.history import History


def check(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """What should not be so, a sentence each."""
    history = History(records)
    found: list[str] = []
    for rule in (*runs.RULES, *order.RULES, *answers.RULES, *leadership.RULES, *slurm.RULES):
        found += rule(history)
    return found
