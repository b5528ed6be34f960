"""What the policy learned survives every way to a core: a start, an upgrade, a mended clock, other
settings and back.

Compared is all that hangs on the policy, on the profiling stage and on the histories, whatever it
is called: what need not survive is named in `NOT_LEARNED`, so that a field which is forgotten fails
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import pytest

from features.job import Job
from scheduler.backends.events import Kind
from scheduler.backends.simulated import JobOutcome
from scheduler.core.cluster import Run
from scheduler.core.estimates import ENDED_HERE
from scheduler.core.queue import QueuedJob
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.audit import audit
from scheduler.service.log.fold import State
from scheduler.service.log.mend import apply, find
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting
from tests.scheduler.service.log.test_mend import YEARS_S, set_clock
from tests.scheduler.service.log.test_snapshots import SAID
from tests.scheduler.service.pages.bundle import small_bundle

# By class: what is no knowledge. Either it is given, or worked out anew from what is known.
NOT_LEARNED = {
    "Pellucid": (
        "settings capabilities max_gpus ageing gpu_exponent order_by profile_above "
        "pack_first_above "
        "busy_above max_wait_s partner_searches borrows lending types pairing remembers "
        "learned pair_predictor _predicts_pairs _experience _unpaired memos "
        "spent"  # when searches did not do: shown beside what they found, which goes as well
    ),
    "DurationDistribution": "_prior _points _tail refreshed _latest",
    "Demand": "pooled",
    "StarvationBound": "max_wait_s overload backfill price _demand",
    "Fairness": "settings weight",
    "Shares": "_weights",
    "_Group": "weights due",
    "Repredict": "period_s",
    "Reservation": "changes",
    "WaitingStage": "limit_s max_gpus scaling _sweep_above _queue",  # of it, who started since
    "KnownProfiles": "recent_s",
    "Easy": "settings default_limit_s learned",
    "Horus": "settings limit_pct capabilities max_gpus learned",
    "Lucid": (
        "settings _sharing pair_predictor _unpaired quiet_jobs sharing_limit priority_factor "
        "capabilities max_gpus learned"
    ),
    "KeyHistory": "_past",  # worked out once it is asked for
    "FeatureState": "features _blocks _picks _whole _zone _survives",
}
# what is worked out again, as of then, when settings change
MADE_AGAIN = (
    *(f"policy.{of}.{what}" for of in ("fairness", "usage") for what in ("_terms", "_next")),
    "policy.starvation.",
)
SETTINGS: dict[str, Any] = {"fairness": {"weight": 0.5}, "predict_again_s": 600.0}


def learned(state: State) -> dict[str, Any]:
    """All that is known to who decides, as plain values, by path."""
    core = state.core
    roots = {"policy": core.policy, "stage": core.profiling, "histories": core.estimator.state}  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    for name, root in roots.items():
        found |= dict(_leaves(root, name, ()))
    assert found
    return found


def _leaves(value: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, QueuedJob | Run):
        yield path, value.job.job_id
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _leaves(one, f"{path}[{_key(key)}]", above)
        yield f"{path} in order", [_key(key) for key in value] if _ordered(value) else len(value)
    elif isinstance(value, list | tuple | set | frozenset) or hasattr(value, "maxlen"):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        for at, one in enumerate(items):
            yield from _leaves(one, f"{path}[{at}]", above)
        yield f"{path} length", len(value)
    elif isinstance(value, str | float | int | Enum | Job | None) or callable(value):
        yield path, repr(value) if isinstance(value, float) else value
    elif id(value) in above:
        yield path, "above"
    else:
        kind = type(value)
        names = [*getattr(value, "__dict__", {})]
        names += [n for k in kind.__mro__ for n in getattr(k, "__slots__", ()) if hasattr(value, n)]
        for name in sorted({*names} - {*NOT_LEARNED.get(kind.__name__, "").split()}):
            yield from _leaves(getattr(value, name), f"{path}.{name}", (*above, id(value)))


def _ordered(value: Mapping[Any, Any]) -> bool:
    return hasattr(value, "move_to_end")


def _key(key: Any) -> str:
    return repr(key)


def known(state: State) -> dict[str, int]:
    """How much is known of what; nothing of it may be nothing."""
    policy = state.core.policy.learned.remember()
    return {
        "ratios": sum(len(one.recent) for one in policy.durations.ranges),
        "usage": len(policy.shares.vcs.members) * len(policy.shares.users),
        "pair errors": policy.pair_errors.seen,
        "usual profiles": len(policy.usual.seen),
        "ends of users": len(policy.repredict.newest),
        "demand": len(policy.demand.jobs),
        "bounds": sum(map(len, policy.bound.by_vc.values())),
        "known profiles": len(state.core.profiling.remember().known),  # type: ignore[union-attr]
    }


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    def outcome(launch: Any) -> JobOutcome:
        return lasting(40.0 + 61 * int(launch.job_id[1:]) % 900)

    desk = Desk(
        store,
        tmp_path,
        outcome,
        policy="pellucid",
        partition=ProfilingPartition(
            nodes={"vc": 1}, largest_share=1, limit_s=30.0, known_s=86_400.0
        ),
        champion=small_bundle().save(tmp_path / "champion"),
        snapshot_every=40,
    )
    desk.ask(Kind.SETTINGS_SET, settings=SETTINGS)
    return desk


# By policy: its settings, others, and how much it knows.
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Any], int]]] = {
    "easy": ({}, {"default_limit_s": 900.0}, lambda memory: len(memory.last_two)),
    "horus": (
        {"limit_pct": 90.0},
        {"limit_pct": 10.0},
        lambda memory: len(memory.belief) * len(memory.watched),
    ),
    "lucid": (
        {"quiet_jobs": 2.0},
        {"quiet_jobs": 500.0},
        lambda memory: len(memory.arrivals) - 100 * len(memory.quiet),
    ),
}


def live(desk: Desk, jobs: range, seed: int = 1) -> None:
    """Jobs of some users come and end; pairs run, and say how fast; one says how far it is."""
    draw = Random(seed)
    for i in jobs:
        name = draw.choice(("train a", "train b"))
        desk.submit(f"j{i}", gpus=draw.choice((1, 1, 1, 2)), owner=draw.choice("abc"), name=name)
        desk.turn(draw.choice((0.0, 10.0, 40.0)))
        holding = desk.decider.state.ledger.holding
        for job_id, record in list(holding.items()):
            grant = record.grant
            if grant is not None and grant.partner is not None and grant.begun and i % 3 == 0:
                body = {"attempt": record.attempt, "speed": draw.choice((0.7, 0.8))}
                desk.ask(Kind.PAIR_OBSERVED, job_id, **body)
    runs = [one for one in desk.decider.state.ledger.holding.values() if one.started_at is not None]
    if runs:
        desk.ask(Kind.PROGRESS, runs[0].job_id, attempt=runs[0].attempt, progress=asdict(SAID))
    desk.turn()


def restart(desk: Desk) -> None:
    desk.restart()


def restart_without_a_snapshot(desk: Desk) -> None:
    desk.snapshot_every = None
    desk.restart()


def another_release(desk: Desk) -> None:
    desk.restart(released=True)


def another_release_without_a_snapshot(desk: Desk) -> None:
    desk.restart(upgraded=True, released=True)


def other_settings_and_back(desk: Desk) -> None:
    policy = desk.decider.state.core.policy.name
    others: tuple[dict[str, Any], ...] = (
        {"fairness": {"weight": 0.0}, "learns_speeds": False},
        {"sharing": {"mode": "exclusive"}, "ageing": 0.1},
        SETTINGS,
    )
    if policy in OTHERS:
        own, other, _ = OTHERS[policy]
        others = other, own
    for changed in others:
        desk.ask(Kind.SETTINGS_SET, settings=changed)
        desk.turn()


WAYS = [
    restart,
    restart_without_a_snapshot,
    another_release,
    another_release_without_a_snapshot,
    other_settings_and_back,
]


@pytest.mark.parametrize("way", WAYS)
def test_all_that_was_learned_survives(desk: Desk, way: Callable[[Desk], None]) -> None:
    live(desk, range(120))
    had = known(desk.decider.state)
    assert all(had.values()), had
    before = learned(desk.decider.state)
    way(desk)
    after = learned(desk.decider.state)
    differ = {path: (before.get(path), after.get(path)) for path in before | after}
    differ = {path: pair for path, pair in differ.items() if pair[0] != pair[1]}
    if way is other_settings_and_back:
        differ = {path: pair for path, pair in differ.items() if not path.startswith(MADE_AGAIN)}
    assert not differ, dict(list(differ.items())[:8])


@pytest.mark.parametrize("policy", OTHERS)
def test_so_does_what_other_policies_learn(store: Store, tmp_path: Path, policy: str) -> None:
    def outcome(launch: Any) -> JobOutcome:
        return lasting(40.0 + 61 * int(launch.job_id[1:]) % 900)

    own, _, amount = OTHERS[policy]
    desk = Desk(store, tmp_path, outcome, policy=policy, snapshot_every=40)
    desk.ask(Kind.SETTINGS_SET, settings=own)
    live(desk, range(40))
    for way in WAYS:
        memory = desk.decider.state.core.policy.learned.remember()
        assert amount(memory) > 0, memory
        before = learned(desk.decider.state)
        way(desk)
        after = learned(desk.decider.state)
        differ = [path for path in before | after if before.get(path) != after.get(path)]
        assert not differ, (way, differ[:8])


def test_a_mended_clock_leaves_what_was_learned_while_it_was_wrong(desk: Desk) -> None:
    """It was years ahead for a while. Durations, profiles and pair speeds are no times of day."""
    live(desk, range(50))
    desk.until_idle()
    set_clock(desk, YEARS_S)
    desk.restart()
    live(desk, range(50, 100), seed=2)
    desk.until_idle()
    before = desk.decider.state.core.policy.learned.remember()
    set_clock(desk, -YEARS_S)
    now = desk.world.now() + 86_400.0
    apply(desk.store, desk.bundle_store.find, find(desk.store, now), actor="", reason="", now=now)
    desk.restart()
    after = desk.decider.state.core.policy.learned.remember()
    for had, has in zip(before.durations.ranges, after.durations.ranges, strict=True):
        assert has.recent == pytest.approx(had.recent, abs=1e-6)
    assert sum(len(one.recent) for one in after.durations.ranges) > 50
    assert after.usual == before.usual
    assert after.pair_errors == before.pair_errors
    assert after.pair_errors.seen > 0
    assert set(after.repredict.newest) == set(before.repredict.newest) == {*"abc"}
    used = after.shares.users["vc"].members
    assert all(amount > 0 and since < YEARS_S for amount, _, since in used.values()), used


def test_a_core_that_followed_the_log_knows_how_little_its_predictions_rest_on(
    store: Store, tmp_path: Path
) -> None:
    """It records it with each reason to wait, as one that decided all along does."""
    outcomes = {f"j{i}": lasting(400.0) for i in range(9)}
    champion = small_bundle().save(tmp_path / "champion")
    desk = Desk(store, tmp_path, outcomes, policy="pellucid", champion=champion)
    for i in range(8):
        desk.submit(f"j{i}", gpus=3 + i % 2, owner=f"owner-{i}")
        desk.turn(5.0)
    before = {job_id: one.evidence for job_id, one in desk.decider.state.core.jobs.items()}
    desk.restart()
    desk.turn()
    after = {job_id: one.evidence for job_id, one in desk.decider.state.core.jobs.items()}
    assert after == before
    assert sum((ENDED_HERE, 0.0) in evidence for evidence in after.values()) > 4
    desk.until_idle()
    assert audit(store, desk.bundle_store.find, decide_again=True).clean
