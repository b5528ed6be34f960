"""Rounds: turns follow shares, and nobody has GPUs that are not there."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.gavel.goals import least_attained_service, refined
from reproductions.gavel.rounds import Gang, Rounds
from tests.reproductions.gavel.problems import a_problem

EVERYWHERE = (True, True, True)


def play(rounds: Rounds, gangs: dict[str, Gang], free: list[int], times: int) -> Counter[object]:
    had: Counter[object] = Counter()
    for _ in range(times):
        for turn in rounds.choose(gangs, free):
            rounds.ran(turn, rounds.round_s)
            had[turn.jobs, turn.type] += 1
    return had


def test_time_received_follows_the_shares() -> None:
    problem = a_problem(12, gpus=(2, 2, 2))
    best = refined(problem, least_attained_service(problem))
    table = best.by_type(3)
    shares = {(f"{i}",): tuple(row) for i, row in enumerate(table)}
    rounds = Rounds(3, 360.0, idle_taken=False)
    rounds.reset(shares, 0.0)
    gangs = {f"{i}": Gang(1, EVERYWHERE) for i in range(12)}
    times = 400
    had = play(rounds, gangs, [2, 2, 2], times)
    for (jobs, kind), turns in had.items():  # not exactly: a job is in one place at a time
        assert turns / times == pytest.approx(shares[jobs][kind], abs=0.05)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 7), st.floats(0, 1)), max_size=12),
    st.lists(st.integers(0, 6), min_size=3, max_size=3),
    st.booleans(),
)
def test_a_round_gives_away_what_there_is_and_to_each_job_once(
    jobs: list[tuple[int, int, float]], free: list[int], idle_taken: bool
) -> None:
    gangs = {
        f"{i}": Gang(gpus, tuple(bool(mask >> k & 1) for k in range(3)))
        for i, (gpus, mask, _) in enumerate(jobs)
    }
    rounds = Rounds(3, 360.0, idle_taken)
    rounds.reset({(f"{i}",): (share, 0.0, 0.0) for i, (_, _, share) in enumerate(jobs)}, 0.0)
    turns = rounds.choose(gangs, free)
    assert len({turn.jobs for turn in turns}) == len(turns)
    for kind in range(3):
        used = sum(gangs[turn.jobs[0]].gpus for turn in turns if turn.type == kind)
        assert used <= free[kind]
    assert all(gangs[turn.jobs[0]].runs[turn.type] for turn in turns)
    if not idle_taken:
        assert all(turn.priority > 0 for turn in turns)
    else:  # whoever could still run, runs
        left = [
            free[k] - sum(gangs[t.jobs[0]].gpus for t in turns if t.type == k) for k in range(3)
        ]
        waiting = set(gangs) - {turn.jobs[0] for turn in turns}
        assert not any(
            gangs[job].runs[k] and gangs[job].gpus <= left[k] for job in waiting for k in range(3)
        )


def test_a_pair_takes_the_gpus_of_one_and_never_idle_ones() -> None:
    gangs = {name: Gang(1, (True,)) for name in "abc"}
    rounds = Rounds(1, 360.0)
    rounds.reset({("a", "b"): (1.0,), ("a",): (0.0,), ("b",): (0.0,), ("c",): (1.0,)}, 0.0)
    assert {turn.jobs for turn in rounds.choose(gangs, [2])} == {("a", "b"), ("c",)}
    rounds.reset({("a", "b"): (0.0,), ("a",): (0.0,), ("b",): (0.0,), ("c",): (1.0,)}, 0.0)
    assert {turn.jobs for turn in rounds.choose(gangs, [2])} == {("c",), ("a",)}
    # a member that is gone takes its pair with it
    rounds.reset({("a", "b"): (1.0,), ("a",): (0.0,), ("b",): (0.0,)}, 0.0)
    del gangs["b"], gangs["c"]
    assert [turn.jobs for turn in rounds.choose(gangs, [2])] == [("a",)]


def test_types_are_mixed_by_seed_and_alike_for_one_seed() -> None:
    gangs = {"a": Gang(1, EVERYWHERE)}

    def types(seed: int | None) -> list[int]:
        rounds = Rounds(3, 360.0, shuffle=seed)
        rounds.reset({("a",): (1.0, 1.0, 1.0)}, 0.0)
        return [rounds.choose(gangs, [1, 1, 1])[0].type for _ in range(20)]

    assert set(types(None)) == {0}
    assert set(types(0)) == {0, 1, 2}
    assert types(0) == types(0)
