"""What changed from one moment on is found within a day; what is as ever is not spoken of."""

from __future__ import annotations

from random import Random

import pytest

from features.watch import DAY_S, HOUR_S, Alarm, Seen, Watch

MONDAY = 1_600_041_600.0 // DAY_S * DAY_S
USERS = {"vision": ("ada", "bob", "cleo", "dan"), "speech": ("eve", "fay", "gus")}


def day_of(number: int, random: Random) -> list[Seen]:
    """A usual day: by day more than by night, in bursts of near-copies."""
    found = []
    for _ in range(60):
        vc = random.choice(list(USERS))
        user = random.choice(USERS[vc])
        hour = min(23.0, max(0.0, random.gauss(14.0, 3.0)))
        at = MONDAY + number * DAY_S + hour * HOUR_S
        typical = 1000.0 if vc == "vision" else 8000.0
        lasts_s = random.lognormvariate(0.0, 1.2) * typical
        gpus = random.choice([1, 1, 1, 2, 8])
        for copy in range(random.choice([1, 1, 2, 5])):
            found.append(
                Seen(at + copy, lasts_s * random.uniform(0.9, 1.1), gpus, vc, user, "A100")
            )
    return found


@pytest.fixture(scope="module")
def watch() -> Watch:
    random = Random(0)
    return Watch([job for number in range(14) for job in day_of(number, random)])


def found(watch: Watch, jobs: list[Seen]) -> dict[str, set[str]]:
    said: dict[str, set[str]] = {}
    for alarm in watch.alarms(jobs):
        said.setdefault(alarm.group, set()).add(alarm.what)
    return said


@pytest.mark.parametrize("seed", range(1, 15))
def test_usual_days_are_not_spoken_of(watch: Watch, seed: int) -> None:
    assert watch.alarms(day_of(14, Random(seed))) == []


def test_a_virtual_cluster_is_named_before_its_users() -> None:
    def of(number: int, times: float, random: Random) -> list[Seen]:
        return [
            job._replace(
                seconds=times * job.seconds, user="eve" if random.random() < 0.5 else "fay"
            )
            if job.vc == "speech"
            else job
            for job in day_of(number, random)
        ]

    random = Random(0)
    watch = Watch([job for number in range(14) for job in of(number, 1.0, random)])
    alarms = watch.alarms(of(14, 60.0, random))
    kinds, most = [alarm.kind for alarm in alarms], max(alarms, key=lambda alarm: alarm.sum)
    assert most.kind == "user", "of whom there is most evidence"
    assert most.name in ("eve", "fay")
    assert kinds.index("virtual cluster") < kinds.index("user")
    assert next(alarm.name for alarm in alarms if alarm.kind == "virtual cluster") == "speech"


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_unit_in_one_virtual_cluster_is_found_there(watch: Watch, seed: int) -> None:
    jobs = [
        job._replace(seconds=60 * job.seconds) if job.vc == "speech" else job
        for job in day_of(14, Random(seed))
    ]
    (alarm, *_) = [a for a in watch.alarms(jobs) if a.group == "virtual cluster speech"]
    assert alarm.what == "last longer"
    assert 20.0 < alarm.ratio < 180.0
    assert "virtual cluster vision" not in found(watch, jobs)


def test_each_kind_of_change_has_its_words(watch: Watch) -> None:
    jobs = day_of(14, Random(1))
    shifted = [job._replace(submitted=job.submitted + 8 * HOUR_S) for job in jobs]
    assert any("h later in the day" in what for what in found(watch, shifted)["all jobs"])
    shorter = [job._replace(seconds=job.seconds / 60) for job in jobs]
    assert "last shorter" in found(watch, shorter)["all jobs"]
    wide = [job._replace(gpus=6 * job.gpus) for job in jobs]
    assert "ask for other numbers of GPUs" in found(watch, wide)["all jobs"]
    single = [job._replace(gpus=1) for job in jobs]
    assert "ask for one GPU only" in found(watch, single)["all jobs"]
    team = [
        job._replace(user=f"new-{i % 5}") if job.vc == "vision" else job
        for i, job in enumerate(jobs)
    ]
    assert found(watch, team)["virtual cluster vision"] == {"are of users never seen before"}


def test_one_user_s_campaign_is_not_its_virtual_cluster_s(watch: Watch) -> None:
    jobs = [
        job._replace(seconds=100 * job.seconds) if job.user == "ada" else job
        for job in day_of(14, Random(2))
    ]
    assert set(found(watch, jobs)) <= {"user ada"}


def test_near_copies_of_an_hour_say_one_thing_once(watch: Watch) -> None:
    noon = MONDAY + 14 * DAY_S + 12 * HOUR_S
    copies = [Seen(noon + i, 1e6, 1, "vision", "ada", "A100") for i in range(500)]
    assert watch.alarms([*day_of(14, Random(3)), *copies]) == []


def test_a_day_without_a_job_is_spoken_of_and_a_holiday_is_not(watch: Watch) -> None:
    late = [job for job in day_of(14, Random(4)) if job.submitted % DAY_S > 20 * HOUR_S]
    late.append(Seen(MONDAY + 14 * DAY_S + 21 * HOUR_S, 1000.0, 1, "vision", "ada", "A100"))
    assert any("did not come" in what for what in found(watch, late).get("all jobs", ()))
    assert watch.alarms([job._replace(submitted=job.submitted + 5 * DAY_S) for job in late]) == []


def test_without_a_past_nothing_is_said() -> None:
    assert Watch([]).alarms(day_of(0, Random(0))) == []
    assert Watch(day_of(0, Random(0))).alarms([]) == []


def test_a_restless_past_asks_for_more() -> None:
    """A site whose days differ as much as a bug would is not told of the next such day."""
    random = Random(5)
    past = []
    for number in range(14):
        times = 40.0 if number % 4 == 3 else 1.0
        past += [job._replace(seconds=times * job.seconds) for job in day_of(number, random)]
    odd = [job._replace(seconds=40.0 * job.seconds) for job in day_of(15, random)]
    calm, restless = Watch(past, learns=False), Watch(past)
    assert len(restless.alarms(odd)) <= len(calm.alarms(odd))
    assert isinstance(calm.alarms([j._replace(seconds=1e9) for j in odd])[0], Alarm)
