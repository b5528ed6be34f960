"""Who may see what. These rules are applied to every row before it leaves `store.reads`.

An operator sees everything. Anybody else sees their own jobs in full; of another user's job they
see that it exists, and no more: no id, no owner, no name, no size, no measurement.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from features.codec import Json
from scheduler.backends.events import Kind
from scheduler.core.decisions import AHEAD, ANOTHER
from scheduler.core.request import CHANGEABLE
from scheduler.core.tree_steps import TreeStep

SOMEBODY = "an operator"


class Role(StrEnum):
    """The rights of a token. Each role has the rights of the one before it, and more."""

    VIEWER = "viewer"  # see the cluster, and jobs of its own name
    SUBMITTER = "submitter"  # submit, cancel and see jobs of its own
    OPERATOR = "operator"  # everything


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person who asks, and what they may see.

    Attributes:
        name: owner of the jobs that the person submits; with authentication off, the local user.
        vcs: virtual clusters to which the person may submit; an operator may submit to all.
        os_user: operating-system user as which their jobs run; "" = the service's own.
        only: the one job of theirs that a shared link shows; "": all of theirs.
    """

    name: str
    role: Role
    vcs: tuple[str, ...] = ()
    os_user: str = ""
    only: str = ""

    @property
    def sees_all(self) -> bool:
        return self.role is Role.OPERATOR and not self.only

    def owns(self, owner: str) -> bool:
        """Return whether every job of `owner` is shown to this viewer in full."""
        return not self.only and (self.sees_all or owner == self.name)

    def sees(self, owner: str, job_id: str) -> bool:
        """Return whether this job of `owner` is shown to this viewer in full."""
        return self.owns(owner) or (job_id == self.only and owner == self.name)

    def may_submit_to(self, vc: str) -> bool:
        return self.role is Role.OPERATOR or (self.role is Role.SUBMITTER and vc in self.vcs)


def redacted_decision(decision: Mapping[str, Any], visible: Collection[str]) -> Json:
    """Return a decision about a job that the viewer may see, without what it says of other jobs
    that they may not see.

    Args:
        visible: ids of the other jobs that the viewer may see. Of a hidden partner, the path
            through the decision tree (its sharing score, the predicted slowdown) stays: it is the
            answer to "why was I packed". The partner's measurements are removed.
    """
    shown = dict(decision)
    if decision.get("blocker") and decision["blocker"] not in visible:
        shown["blocker"] = AHEAD
    if decision.get("partner") and decision["partner"] not in visible:
        shown["partner"] = ANOTHER
        steps = map(TreeStep.of, decision.get("tree_path") or ())
        shown["tree_path"] = [
            str(step.without_value()) for step in steps if not step.of_partner or step.ends
        ]
    if decision.get("held_by"):
        shown["held_by"] = [job if job in visible else ANOTHER for job in decision["held_by"]]
    # Text among the evidence may name other jobs; numbers are about this one.
    shown["evidence"] = [
        [name, value]
        for name, value in decision.get("evidence") or ()
        if not isinstance(value, str) or value in visible
    ]
    return shown


# fields of events' bodies that a submitter may see of a job of their own
_SHOWN_OF_EVENT: Mapping[str, tuple[str, ...]] = {
    Kind.SUBMITTED: (),  # the job itself says what was asked for
    Kind.CANCEL_ASKED: (),
    Kind.PRIORITY_SET: ("priority",),
    Kind.HELD: ("operator",),
    Kind.RELEASED: ("operator",),
    Kind.CHANGED: tuple(CHANGEABLE),
    Kind.STARTED: ("attempt",),
    Kind.OBSERVED: ("attempt", "profile"),
    Kind.PAIR_OBSERVED: ("attempt", "speed"),
    Kind.PROGRESS: ("attempt", "progress"),
    Kind.UNREAD: ("attempt", "detail"),
    Kind.PROFILED: ("attempt", "profile"),
    Kind.ENDED: ("attempt", "state", "exit_code", "ran_s", "detail"),
    Kind.LOST: ("attempt", "detail"),
    Kind.NOT_STARTED: ("attempt", "detail"),
    Kind.FORECAST: (
        "start_p10",
        "start_p50",
        "start_p90",
        "end_p50",
        "end_p90",
        "why_not",
        "estimate",
    ),
}


def shown_event(viewer: Viewer, kind: str, body: Mapping[str, Any]) -> Json | None:
    """Return what the viewer may see of the body of an event about their job, or None when that is
    nothing.
    """
    if viewer.sees_all:
        return dict(body)
    fields = _SHOWN_OF_EVENT.get(kind)
    if fields is None:
        return None
    return {name: body[name] for name in fields if name in body}


def shown_actor(viewer: Viewer, actor: str) -> str:
    """Return the name that the viewer sees of who did something to a job. Operators see every name,
    others only their own; for anybody else they see "an operator". "" stays "".
    """
    return actor if viewer.sees_all or actor in ("", viewer.name) else SOMEBODY
