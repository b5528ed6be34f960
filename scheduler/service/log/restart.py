"""Starts a service on an existing log with another cluster file: finds what differs, and settles
which of the two holds.

Compared are what the file states and the present nodes and settings of the log, changes by
operators included. A default that nobody wrote in the file never differs. Either the file is
applied, as logged changes by an operator, or the log stays as it is and the file is ignored.
Whoever starts the service must choose.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, func, select

from scheduler.assembly import ALL_STATED, CoreSpec, Stated
from scheduler.core.cluster import ClusterSpec, Node
from scheduler.core.plural import count
from scheduler.core.settings import ProfilingPartition, Settings, flat, read
from scheduler.service.log.cluster_changes import (
    ChangeRefused,
    ClusterChanges,
    Wanted,
    fixed_nodes,
    too_large,
)
from scheduler.service.log.header import LogHeader, LogHeaderError
from scheduler.service.log.nodes import NodeRecord, names_of
from scheduler.service.log.present import Present
from scheduler.service.log.record import Phase
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs

Choice = Literal["apply", "keep"]
Ask = Callable[[ClusterChanges], Wanted]


class FileDiffers(LogHeaderError):
    """Raised when the cluster file and the log differ, and nobody chose which of them holds, or the
    choice is impossible.

    Attributes:
        differences: a line for each difference.
        can_apply: whether the file can be applied, if somebody chooses so.
    """

    def __init__(self, why: str, differences: Iterable[str], *, can_apply: bool):
        super().__init__(why)
        self.differences = list(differences)
        self.can_apply = can_apply


@dataclass(frozen=True, slots=True)
class Difference:
    """One point in which the cluster file differs from the log.

    Attributes:
        lines: the difference in words.
        ask: returns the change by which the log would follow the file; None: no change can, for the
            reason `why_not`.
    """

    lines: tuple[str, ...]
    ask: Ask | None
    why_not: str = ""


def settle(
    store: Store,
    spec: CoreSpec,
    names: tuple[str, ...] = (),
    *,
    stated: Stated = ALL_STATED,
    choice: Choice | None = None,
    fake_gpus: bool = False,
    actor: str = "",
    at: Callable[[LogHeader], float],
) -> Present:
    """Apply the cluster file to the log where they differ, or keep the log as it is, as was chosen.
    Return the nodes and settings that hold. Raise FileDiffers where that is impossible; then
    nothing has changed.

    Args:
        spec, names: cluster, policy and settings of the file, and the names of its nodes.
        stated: which parts of these somebody wrote in the file; a default never differs.
        choice: apply the file, or keep the log; None: raise FileDiffers when they differ.
        fake_gpus: whether the local backend's GPUs are only declared.
        actor: name of the person who applies the file.
        at: returns the time on the service's clock.
    """
    with store.writing() as connection:
        present = Present.read(store, connection)
        assert present is not None, "the log has begun"
        found = differences(
            present=present, spec=spec, names=names, live=live_jobs(connection), stated=stated
        )
        if not found or choice == "keep":
            return present
        lines = [line for one in found for line in one.lines]
        fixed = fixed_nodes(present.header.backend, fake_gpus)
        before = set(too_large(connection, present))
        wanted, cannot = _carried_out(ClusterChanges(present, fixed), found)
        if choice is None or cannot:
            after = [] if cannot else too_large(connection, present)
            never = [job for job in after if job not in before]
            raise _undecided(lines, cannot, never, choice)
        header = present.header
        store.append_in(connection, [one.event(at(header), actor) for one in wanted])
        return present


def _undecided(
    lines: list[str], cannot: list[str], never: list[str], choice: Choice | None
) -> FileDiffers:
    lines = lines + [f"cannot be applied: {line}" for line in cannot]
    if never:
        some = ", ".join(never[:10]) + (", ..." if len(never) > 10 else "")
        lines.append(f"if the file is applied, too large for their virtual cluster: jobs {some}")
    keep = "--keep-log goes on with the log and ignores the file"
    if cannot:
        what = "the cluster file differs from the log, and cannot be applied as it is"
        if choice == "apply":
            what = f"--apply-file: {cannot[0]}; nothing was changed"
        return FileDiffers(f"{what}: {keep}, or use another database", lines, can_apply=False)
    apply = "--apply-file makes the log follow the file"
    why = f"the cluster file differs from the log: {apply}, {keep}"
    return FileDiffers(why, lines, can_apply=True)


def _carried_out(
    changes: ClusterChanges, found: list[Difference]
) -> tuple[list[Wanted], list[str]]:
    """Return the possible changes, in an order in which each can be made, and a line for each
    impossible one, with the reason. The possible ones are applied to `changes`, not to the log.
    """
    cannot = [one.why_not for one in found if one.ask is None]
    left = [one for one in found if one.ask is not None]
    made: list[Wanted] = []
    while left:
        again: list[Difference] = []
        refused: list[str] = []
        for one in left:
            assert one.ask is not None
            try:
                wanted = one.ask(changes)
            except ChangeRefused as error:
                again.append(one)
                refused.append(f"{one.lines[0]}: {error}")
            else:
                made.append(wanted)
                changes.present.take(wanted.event(0.0, ""))
        if len(again) == len(left):
            return made, cannot + refused
        left = again
    return made, cannot


def live_jobs(connection: Connection) -> dict[str, int]:
    """Return how many jobs have not ended, by virtual cluster."""
    over = [phase.value for phase in Phase if phase.over]
    query = (
        select(jobs.c.vc, func.count().label("n"))
        .where(jobs.c.phase.not_in(over))
        .group_by(jobs.c.vc)
    )
    return {row.vc: row.n for row in connection.execute(query)}


# --- what differs -------------------------------------------------------------------------------


def differences(
    present: Present,
    spec: CoreSpec,
    names: tuple[str, ...],
    live: Mapping[str, int],
    stated: Stated,
) -> list[Difference]:
    """Return the points in which a cluster file differs from the log. `live`: number of jobs that
    have not ended, by virtual cluster.
    """
    found = [*_kept_for_good(present, spec, stated), *_settings(present, spec)]
    if stated.nodes:
        found += _nodes(present, spec.cluster, names)
        found += _gone(present, spec.cluster, live)
    return found


def _kept_for_good(present: Present, spec: CoreSpec, stated: Stated) -> list[Difference]:
    """Return the differences in cluster name, policy and profiling partition. A log keeps its own
    for ever, so none of these differences can be applied.
    """
    was = present.header.spec
    found = []
    of_policy = stated.policy or bool(spec.settings.stated())  # whose settings they are
    for what, file, log, given in (
        ("cluster name", spec.cluster.name, was.cluster.name, stated.name),
        ("policy", spec.policy, was.policy, of_policy),
    ):
        if given and file != log:
            why = f"a log keeps its {what}"
            found.append(Difference((f"{what}: file {file}, log {log}",), None, why))
    none = ProfilingPartition(known_s=0.0)
    lent: Settings = _partition(present) or none
    if spec.profiling is None:  # as was asked for
        lines = _of_settings("profiling.", none, lent)
    else:
        stands = read(ProfilingPartition, spec.profiling.over(lent))
        lines = _of_settings("profiling.", stands, lent) if stated.nodes else ()
    if lines:
        found.append(Difference(lines, None, "a log keeps its profiling partition"))
    return found


def _partition(present: Present) -> ProfilingPartition | None:
    """Return the log's profiling partition, with the number of nodes that each virtual cluster
    lends to it now; None where there is none.
    """
    spec = present.header.spec
    if spec.profiling is None or not spec.lent:
        return spec.profiling
    lent: dict[str, int] = {}
    for record in present.nodes.records.values():
        has = record.intended
        if record.profiling and has is not None and has.vc == record.has.vc:
            lent[has.vc] = lent.get(has.vc, 0) + 1
    return spec.profiling.model_copy(update={"nodes": lent})


def _settings(present: Present, spec: CoreSpec) -> list[Difference]:
    if spec.policy != present.header.spec.policy:
        return []
    log = present.spec.settings
    plain = spec.settings.over(log)
    lines = _of_settings("policy.", read(type(log), plain), log)
    reason = "as in the cluster file"
    ask: Ask = lambda there: there.set_all_settings(plain, reason)  # noqa: E731
    return [Difference(lines, ask)] if lines else []


def _of_settings(prefix: str, file: Settings, log: Settings) -> tuple[str, ...]:
    new, old = flat(file), flat(log)
    return tuple(
        f"{prefix}{name}: file {_value(new, name)}, log {_value(old, name)}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    )


def _value(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return "off" if value is None else f"{value}"


def _gone(present: Present, cluster: ClusterSpec, live: Mapping[str, int]) -> list[Difference]:
    """Return a difference for each virtual cluster that has unended jobs and is not in the file. No
    such difference can be applied.
    """
    return [
        Difference(
            (f"virtual cluster {vc}: in the log with {count(live[vc], 'job')}, not in the file",),
            None,
            f"virtual cluster {vc}: {count(live[vc], 'job')} there not over",
        )
        for vc in sorted({r.has.vc for r in present.nodes.records.values()} | live.keys())
        if vc not in cluster.vcs and live.get(vc)
    ]


# --- nodes --------------------------------------------------------------------------------------


def _nodes(present: Present, cluster: ClusterSpec, names: tuple[str, ...]) -> list[Difference]:
    """Return the differences in nodes: those to be added, changed and removed. Nodes with a name in
    the file are compared by name. Each other node of the file is matched with a node of the log,
    the most similar first.
    """
    file = list(zip(cluster.nodes(), names_of(cluster, names), strict=True))
    log = {record.name: record for record in present.nodes.records.values()}
    taken = log.keys() | {name for _, name in file}
    missing = [(has, name) for has, name in file if name and name not in log]
    pairs = [(has, log.pop(name)) for has, name in file if name in log]
    nameless = [has for has, name in file if not name]
    for alike in (_same, _going, _same_vc, _same_gpus):
        nameless, found = _matched(nameless, log, alike)
        pairs += found
    numbered = (f"node{number:03d}" for number in itertools.count(present.nodes.next))
    fresh = (name for name in numbered if name not in taken)
    missing += [(has, next(fresh)) for has in nameless]
    return [
        *(_comes(has, name) for has, name in missing),
        *(_changes(has, record) for has, record in pairs if not _same(has, record)),
        *(_goes(record) for record in log.values() if record.intended is not None),
    ]


def _matched(
    nodes: list[Node], log: dict[str, NodeRecord], alike: Callable[[Node, NodeRecord], bool]
) -> tuple[list[Node], list[tuple[Node, NodeRecord]]]:
    """Return the nodes of the file for which no node of the log is `alike`, and pairs of the other
    nodes with their matches. Matches are removed from `log`.
    """
    left: list[Node] = []
    found: list[tuple[Node, NodeRecord]] = []
    for has in nodes:
        record = next((record for record in log.values() if alike(has, record)), None)
        if record is None:
            left.append(has)
        else:
            found.append((has, log.pop(record.name)))
    return left, found


def _key(has: Node) -> Node:
    return replace(has, gpu_type=has.gpu_type.casefold())


def _same(has: Node, record: NodeRecord) -> bool:
    return record.intended is not None and _key(record.intended) == _key(has)


def _going(has: Node, record: NodeRecord) -> bool:
    """Return whether a node of the log is to be removed and has just what the file's node `has`, so
    that the file would keep it.
    """
    return record.leaves and _key(record.has) == _key(has)


def _same_vc(has: Node, record: NodeRecord) -> bool:
    return record.intended is not None and record.intended.vc == has.vc


def _same_gpus(has: Node, record: NodeRecord) -> bool:
    return record.intended is not None and _key(replace(record.intended, vc=has.vc)) == _key(has)


def _comes(has: Node, name: str) -> Difference:
    line = f"node {name}: {_words(has)} in the file, not in the log"
    to = asdict(has)
    return Difference((line,), lambda there: there.add(name, **to, new_vc=True))


def _goes(record: NodeRecord) -> Difference:
    line = f"node {record.name}: in the log, not in the file"
    reason = "not in the cluster file"
    return Difference((line,), lambda there: there.remove(record.name, reason))


def _changes(has: Node, record: NodeRecord) -> Difference:
    if _going(has, record):
        line = f"node {record.name}: in the file; in the log it is to leave"
        return Difference((line,), lambda there: there.set_open(record.name, True))
    log = "to leave" if record.intended is None else _words(record.intended)
    line = f"node {record.name}: file {_words(has)}, log {log}"
    to = {k: v for k, v in asdict(has).items() if v != getattr(record.intended or record.has, k)}
    reason = "as in the cluster file"
    return Difference((line,), lambda there: there.change(record.name, to, reason, new_vc=True))


def _words(has: Node) -> str:
    return f"{has.gpus} x {has.gpu_type or 'GPU'} of {has.gpu_memory_mib:g} MiB in {has.vc}"
