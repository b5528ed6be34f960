"""No view a submitter can reach holds another user's name, job name, job id or features."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi.routing import iter_route_contexts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert

from scheduler.backends.events import Event, Kind
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.reasons import sentence
from scheduler.explain.words import sentence_of
from scheduler.service.analyst.process import Analyst
from scheduler.service.api import shares
from scheduler.service.api.limits import Limits
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts
from scheduler.service.log.store.visibility import redacted_decision
from tests.scheduler.service.api.conftest import Service

PEOPLE = ("alice", "bob.noyce", "olga")
STREAMS = {"/live"}  # tells topics and no content; endless
FILES = {"/static/{name:path}"}


def features(number: int) -> dict[str, Any]:
    """What one job asks for, unlike any other: each value names the job it belongs to."""
    return {
        "name": f"zqjob{number}zq",
        "workdir": f"/zqdir{number}zq",
        "environment": {f"ZQVAR{number}ZQ": f"zqvalue{number}zq"},
        "memory_mib": 7_310_000.25 + number,
        "time_limit_s": 8_420_000.25 + number,
        "cpus": 954_000.25 + number,
    }


def shows(text: str, mark: str) -> bool:
    """Whether a view in small letters has a mark in it; digits at the end of a longer number, as of
    a time, are none.
    """
    found = mark.lower()
    if not found[0].isdigit() or found.isalnum() or found not in text:
        return found in text
    return re.search(rf"(?<![0-9.,]){re.escape(found)}", text) is not None


def marks(number: int) -> list[str]:
    """How those values, or parts of them, look in a view."""
    return [
        f"zqjob{number}zq", f"zqdir{number}zq", f"ZQVAR{number}ZQ", f"zqvalue{number}zq",
        f"{7_310_000 + number}.25", f"{7_310_000 + number:,}", f"{8_420_000 + number}.25",
        f"{8_420_000 + number:,}", f"{954_000 + number}.25", f"zqdetail{number}zq",
        f"{60_000 + number}.5",
    ]  # fmt: skip


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("submit"),
            st.sampled_from(PEOPLE),
            st.integers(1, 8),
            st.sampled_from([5.0, 50.0, 500.0]),
            st.booleans(),
        ),
        st.tuples(st.just("turn"), st.sampled_from([0.0, 10.0, 100.0])),
        st.tuples(st.just("cancel"), st.integers(0, 20)),
        st.tuples(st.just("priority"), st.integers(0, 20), st.integers(-3, 3)),
        st.tuples(st.just("hold"), st.integers(0, 20)),
        st.tuples(st.just("release"), st.integers(0, 20)),
        st.tuples(st.just("change"), st.integers(0, 20), st.integers(1, 4)),
        st.tuples(st.just("lost"), st.integers(0, 20)),
    ),
    min_size=6,
    max_size=16,
)


def play(service: Service, story: list[tuple[Any, ...]]) -> dict[str, tuple[str, int]]:
    """Act the steps out. Returns owner and number of each job."""
    jobs: dict[str, tuple[str, int]] = {}

    def pick(number: int) -> str | None:
        return list(jobs)[number % len(jobs)] if jobs else None

    # a full cluster first, so that there are blockers to be named
    for who, gpus in (("bob.noyce", 8), ("alice", 8), ("bob.noyce", 4), ("alice", 2)):
        submit(service, jobs, who, gpus, 1000.0)
    service.turn(2)
    for kind, *rest in story:
        if kind == "submit":
            who, gpus, seconds, share = rest
            submit(service, jobs, who, gpus, seconds, share=share)
        elif kind == "turn":
            service.turn(2, rest[0])
        elif job := pick(rest[0]):
            act(service, kind, job, jobs[job][1], *rest[1:])
    service.turn(2)
    return jobs


def act(service: Service, kind: str, job: str, number: int, *rest: Any) -> None:
    """What an operator does about a job, or what becomes of it."""
    olga, path = service.by("olga"), f"/api/v1/jobs/{job}"
    if kind == "lost":
        body = {"attempt": 99, "detail": f"zqdetail{number}zq"}
        service.store.append([Event(Kind.LOST, time.time(), job, body=body)])
        return
    method, where, body = {
        "cancel": ("POST", "/cancel", None),
        "priority": ("PUT", "/priority", {"priority": rest and rest[0]}),
        "hold": ("PUT", "/hold", None),
        "release": ("DELETE", "/hold", None),
        "change": ("PATCH", "", {"gpus": rest and rest[0], "vc": "speech"}),
    }[kind]
    olga.request(method, path + where, json=body)


def submit(
    service: Service,
    jobs: dict[str, tuple[str, int]],
    who: str,
    gpus: int,
    seconds: float,
    **more: Any,
) -> None:
    number = 100 + len(jobs)
    job = service.submit(who, seconds, gpus=gpus, **features(number), **more)
    jobs[job] = who, number
    start = time.time() + 60_000.5 + number
    row = {"job_id": job, "made_at": time.time(), "start_p50": start, "start_p90": start}
    with service.store.writing() as connection:
        for basis in ("submission", "latest"):
            connection.execute(insert(forecasts).values(basis=basis, **row))


def some(jobs: dict[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
    """The first two jobs of each owner, which run, and the last, which waits."""
    of = {owner: [job for job in jobs if jobs[job][0] == owner] for owner in PEOPLE}
    chosen = {job for own in of.values() for job in (*own[:2], *own[-1:])}
    return {job: jobs[job] for job in jobs if job in chosen}


def addresses(service: Service, jobs: dict[str, tuple[str, int]]) -> Iterator[str]:
    """Every address that answers GET, with every job in it."""
    found = 0
    for route in iter_route_contexts(service.app.routes):
        if not route.path or "GET" not in (route.methods or ()) or route.path in STREAMS | FILES:
            continue
        found += 1
        if "{mark}" in route.path:
            continue  # below: what a shared link shows is nobody's who is logged in
        if "{job_id}" in route.path:
            for job in jobs:
                last = route.path.rpartition("/")[2]
                asked = {"after": f"?other={job}", "act": "?do=cancel"}.get(last, "")
                yield route.path.replace("{job_id}", job) + asked
        elif "{array_id}" in route.path:
            asked = "?do=cancel" if route.path.endswith("/act") else ""
            for array in dict.fromkeys(job.rpartition("_")[0] for job in jobs if "_" in job):
                yield route.path.replace("{array_id}", array) + asked
        else:
            assert "{" not in route.path, f"{route.path}: say here what stands for its parts"
            yield route.path
    assert found >= 20
    yield from (
        "/api/v1/queue?vc=vision",
        "/api/v1/queue?vc=speech",
        "/api/v1/jobs?owner=bob.noyce",
    )
    yield from ("/history?owner=bob.noyce&period=all", "/?vc=vision", "/fairness?period=all")


@contextmanager
def played(
    tables: Path, story: list[tuple[Any, ...]]
) -> Iterator[tuple[Service, dict[str, tuple[str, int]]]]:
    """A service of its own in which the steps were acted out, and owner and number of each job."""
    with TemporaryDirectory() as name:
        store = Store(f"sqlite:///{shutil.copy(tables, Path(name) / 'pellucid.db')}")
        service = Service(store, Path(name), Limits(rate_per_s=1e6, burst=10**6))
        yield service, play(service, story)
        service.app.state.changes.close()
        store.close()


@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(story=steps)
def test_nothing_of_anothers_job_is_in_any_view(tables: Path, story: list[tuple[Any, ...]]) -> None:
    with played(tables, story) as (service, jobs):
        shared_links(service, jobs)
        for who in ("alice", "bob.noyce"):
            hidden = [person for person in PEOPLE if person != who]
            for job, (owner, number) in jobs.items():
                if owner != who:
                    hidden += [job, *marks(number)]
            person = service.by(who)
            for address in addresses(service, some(jobs)):
                answer = person.get(address)
                assert answer.status_code in (200, 403, 404, 409, 422, 503), address
                if any(jobs[job][0] == who for job in jobs if job in address):
                    # asked in front of Slurm alone, and of jobs that run on the service's host
                    elsewhere = address.endswith(("/sooner", "/output", "/nodes"))
                    assert answer.status_code == (409 if elsewhere else 200), address
                text = answer.text.replace(address, "").lower()
                for mark in hidden:
                    if mark in address:
                        continue  # the reader wrote it there
                    if address == "/forecasts" and mark.startswith("60"):
                        continue  # promised and true waits are drawn as points that name nobody
                    assert not shows(text, mark), f"{who} sees {mark} at {address}"


def shared_links(service: Service, jobs: dict[str, tuple[str, int]]) -> None:
    """What a link to a job shows, whoever made it, is of that job and its owner only."""
    for job, (owner, own) in some(jobs).items():
        others = {other: of for other, of in jobs.items() if other != job}
        hidden = [person for person in PEOPLE if person != owner] + list(others)
        hidden += [mark for _, number in others.values() for mark in marks(number)]
        hidden += [f"zqdir{own}zq", f"zqvar{own}zq", f"zqvalue{own}zq"]  # no part of the answer
        for maker in (owner, "olga"):
            with service.store.writing() as connection:
                secret = service.secrets[maker]
                made = shares.make(connection, secret, job, shares.HOUR_S, time.time())
            assert made is not None
            answer = service.strangers.get(f"/shared/{job}/{made.mark}")
            assert answer.status_code == 200
            text = answer.text.lower()
            assert f"zqjob{own}zq" in text
            assert not [mark for mark in hidden if shows(text, mark)], (maker, job)


@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(story=steps)
def test_nothing_of_anothers_job_is_in_what_the_analyst_answers(
    tables: Path, story: list[tuple[Any, ...]]
) -> None:
    with played(tables, story) as (service, jobs):
        analyst = Analyst(service.store, service.decider.bundle_store, holder="test", samples=4)
        assert analyst.take_over()
        questions: list[tuple[str, dict[str, Any]]] = [
            ("why", {}),
            ("forecast", {}),
            ("suggest", {"vcs": ["vision", "speech"]}),
            ("whatif", {"changes": {"first": True}, "others": True}),
            ("whatif", {"changes": {"gpus": 1}, "others": True}),
            ("whatif", {"changes": {"held": True}, "others": True}),
        ]
        asked = {kind for kind, _ in questions} | {"after", "order", "new", "histories"}
        answered = 0

        async def ask(kind: str, body: dict[str, Any], _: str) -> dict[str, Any]:
            assert kind in asked | {"cluster"}, f"{kind}: ask it above, of each job"
            return analyst.reply(kind, body)

        service.app.state.questions.ask = ask
        for job, (owner, _) in some(jobs).items():
            others = {other: of for other, of in jobs.items() if of[0] != owner}
            hidden = {person for person in PEOPLE if person != owner} | set(others)
            hidden |= {mark for _, number in others.values() for mark in marks(number)}
            own = [other for other, of in jobs.items() if of[0] == owner]
            after = [("after", {"other": other}) for other in own]
            lists = [("order", {"vc": vc, "owner": owner, "limit": 9}) for vc in ("vision", "x")]
            for kind, more in [*questions, *after, *lists]:
                reply = analyst.reply(kind, {"job_id": job, "names": False, **more})
                answered += "unavailable" not in reply
                text = json.dumps(reply).lower()
                assert not [mark for mark in hidden if shows(text, mark)], (kind, reply)
            if owner == "olga":
                continue  # an operator reads of everybody
            for method, page, body in answers_about(service, job, own):
                answer = service.by(owner).request(method, page, json=body)
                assert answer.status_code in (200, 202, 403, 409), (page, answer.text)
                text = answer.text.lower()
                assert not [mark for mark in hidden if shows(text, mark)], (method, page)
        assert answered, "somebody waits in every story"


ASKED = {  # of every route that changes something: what is sent to it, as a preview
    ("PATCH", "/api/v1/jobs/{job_id}"): {"gpus": 1},
    ("PUT", "/api/v1/jobs/{job_id}/hold"): None,
    ("DELETE", "/api/v1/jobs/{job_id}/hold"): None,
    ("PUT", "/api/v1/jobs/{job_id}/priority"): {"priority": -1},
    ("POST", "/api/v1/jobs/{job_id}/whatif"): {"first": True},
    ("POST", "/api/v1/jobs/eta"): {"command": ["true"], "vc": "vision", "gpus": 1},
    ("POST", "/api/v1/jobs/cancel"): {"jobs": []},  # of all that are one's own
    ("PUT", "/api/v1/nodes/{node}"): {"open": False, "reason": "fan"},
    ("PATCH", "/api/v1/nodes/{node}"): {"vc": "speech"},
    ("DELETE", "/api/v1/nodes/{node}"): None,
    ("POST", "/api/v1/nodes"): {"name": "fresh", "vc": "vision"},
    ("PUT", "/api/v1/settings"): {"settings": {"ageing": 0.1}},
}
NO_PREVIEW = {  # they do it, and tell of one's own job, or of nobody's
    ("POST", "/api/v1/jobs"),
    ("POST", "/api/v1/jobs/array"),
    ("POST", "/api/v1/jobs/{job_id}/cancel"),
    ("DELETE", "/api/v1/links/{link_id}"),
    ("POST", "/api/v1/eta"),  # in front of Slurm alone
}


def answers_about(
    service: Service, job: str, own: list[str]
) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """What an owner may ask about a job while an analyst answers: method, address, body.

    A route of the API that is not known here fails.
    """
    for route in iter_route_contexts(service.app.routes):
        path = route.path or ""
        for method in sorted(route.methods or ()):
            if method == "GET" and "{job_id}" in path and "{mark}" not in path:
                last = path.rpartition("/")[2]
                rest = {"after": f"?other={own[0]}", "act": "?do=hold", "ask": "?help=1",
                        "explain": "?analyse=true"}.get(last, "")  # fmt: skip
                if last != "sooner":  # in front of Slurm alone
                    yield method, path.replace("{job_id}", job) + rest, None
            elif path.startswith("/api/") and method not in ("GET", "HEAD"):
                if (method, path) in NO_PREVIEW:
                    continue
                assert (method, path) in ASKED, f"{method} {path}: say here what is sent to it"
                body = ASKED[method, path]
                where = path.replace("{job_id}", job).replace("{node}", "0")
                yield (
                    method,
                    f"{where}?preview=true",
                    {"jobs": own} if body == {"jobs": []} else body,
                )
    yield "GET", "/api/v1/order", None


def test_an_operator_sees_all(service: Service) -> None:
    """The same marks are there to be found: the property above is not empty."""
    jobs = play(service, [("turn", 10.0)])
    seen = "".join(service.by("olga").get(address).text for address in addresses(service, jobs))
    for job, (owner, number) in jobs.items():
        assert job in seen
        assert owner in seen
        assert f"zqjob{number}zq" in seen


ids = st.sampled_from(["mine", "theirs"])


@given(
    blocker=st.none() | ids,
    partner=st.none() | ids,
    reason=st.sampled_from(list(Reason)),
    own=st.lists(st.sampled_from(["gpu_util_pct 40 <= 55", "sharing score 0 (tiny)"])),
    other=st.lists(st.sampled_from(["gpu_util_pct 77.125 > 55", "sharing score 1 (medium)"])),
    action=st.sampled_from([Action.PACK, Action.WAIT]),
    held_by=st.lists(ids, max_size=3),
)
def test_a_decision_names_no_hidden_job(
    blocker: str | None,
    partner: str | None,
    reason: Reason,
    own: list[str],
    other: list[str],
    action: Action,
    held_by: list[str],
) -> None:
    decision = Decision(
        0, 0.0, action, reason, "job", "vc", need=4, free=2, limit=8, position=3,
        blocker=blocker, partner=partner, held_by=tuple(held_by),
        tree_path=(*own, "gpu_util_sum_pct 95.125 <= 101", *(f"partner: {s}" for s in other)),
        evidence=(("gain", 1.5), ("against", "theirs"), ("beside", "mine")),
    )  # fmt: skip
    body = json.loads(json.dumps(decision.body()))
    shown = redacted_decision(body, {"mine"})
    told = json.dumps(shown) + sentence(Decision.from_body(body), {"mine"})
    told += sentence_of(Decision.from_body(shown))
    assert "theirs" not in told
    words = sentence(Decision.from_body(body), {"mine"})
    assert not [mark for mark in ("\0", "\1", "None") if mark in words], words
    if partner == "theirs":
        assert "77.125" not in told
        assert "95.125" not in told, "it knows its own part of the sum"
        mine = [step for step in shown["tree_path"] if not step.startswith("partner")]
        assert mine == [*own, "gpu_util_sum_pct not shown <= 101"]
    if partner == "mine":
        assert shown.get("tree_path") == body.get("tree_path")


def test_digits_within_a_time_are_no_mark() -> None:
    assert shows("in 60101.5 s", "60101.5")
    assert not shows("at 1796360101.5", "60101.5")
    assert shows("as zqjob101zq", "ZQJOB101zq")
