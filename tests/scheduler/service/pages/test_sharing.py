"""A link to one job's answer: signed, for a while, for reading, and for that job only."""

from __future__ import annotations

import re
import string
import time
from html import unescape
from random import Random

import pytest
from fastapi.testclient import TestClient

from scheduler.service.api import shares, tokens
from scheduler.service.api.limits import Limits
from scheduler.service.app import create_app
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.visibility import Role
from tests.scheduler.service.pages.conftest import Lived
from tests.scheduler.service.pages.test_operations import fields

GONE = "This link does not hold, or does no more."


@pytest.fixture
def jobs(lived: Lived) -> tuple[str, str, str]:
    """A job of Grace's that runs; two of Ada's that wait."""
    ids = [
        lived.submit(who, name=name, gpus=4, vc="vision", command=["train", "zqsecretzq"])
        for who, name in (
            ("grace.hopper", "runs-private"),
            ("ada.byron", "sweep"),
            ("ada.byron", "other-of-mine"),
        )
    ]
    lived.settle(1)
    return ids[0], ids[1], ids[2]


def _link(lived: Lived, user: str, job: str, lasts: str = "1 day") -> str:
    """The path of a link, made as a person makes it."""
    browser = lived.browser(user)
    sent = fields(browser.get(f"/jobs/{job}/share").text)
    made = browser.post(f"/jobs/{job}/share", data={**sent, "lasts": lasts})
    assert made.status_code == 200, made.text
    [link] = re.findall(r'<input data-link readonly value="http://testserver([^"]+)">', made.text)
    return str(link)


def test_a_link_names_the_address_that_others_reach(
    lived: Lived, jobs: tuple[str, str, str]
) -> None:
    """Behind a proxy it is the proxy's; on loopback it is said that it works here only."""
    state, browser, path = lived.app.state, lived.browser("ada.byron"), f"/jobs/{jobs[1]}/share"
    sent = {**fields(browser.get(path).text), "lasts": "1 day"}
    here = {"Host": "127.0.0.1:8400"}
    for names, headers, link in (
        ("", {"X-Forwarded-Proto": "https"}, "https://testserver/"),
        ("", {}, "http://testserver/"),
        ("", here, "http://127.0.0.1:8400/"),
        ("gpu.example.org", here, "https://gpu.example.org/"),
    ):
        state.settings = state.settings.model_copy(update={"server_names": names})
        made = browser.post(path, data=sent, headers=headers).text
        assert f'data-link readonly value="{link}shared/' in made
        assert ("It works on this machine only" in made) is ("127.0.0.1" in link)


def _guest(lived: Lived, path: str) -> tuple[int, str]:
    answer = lived.browser("").get(path)
    return answer.status_code, unescape(answer.text)


@pytest.mark.parametrize("maker", ["ada.byron", "olga"])
def test_a_colleague_reads_the_answer_and_nothing_else(
    lived: Lived, jobs: tuple[str, str, str], maker: str
) -> None:
    runs, mine, other = jobs
    status, page = _guest(lived, _link(lived, maker, mine))
    assert status == 200
    assert "sweep" in page
    assert "Why it waits" in page
    assert '<svg class="runs"' in page
    for secret in (runs, other, "runs-private", "other-of-mine", "grace.hopper", "olga",
                   "zqsecretzq", "<form", "Log out", "/act", "/ask"):  # fmt: skip
        assert secret not in page, secret
    assert "another user's job" not in page  # others of the owner's are hidden too
    assert "another job</li>" in page
    assert f'href="/jobs/{mine}"' not in page
    link = _link(lived, maker, mine)
    answer = lived.browser("").get(link)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in answer.headers
    part = lived.browser("").get(link, headers={"HX-Target": "part-job"})
    assert part.text.strip().startswith('<div id="part-job"')


def test_nobody_makes_a_link_to_anothers_job(lived: Lived, jobs: tuple[str, str, str]) -> None:
    runs, mine, _ = jobs
    grace = lived.browser("grace.hopper")
    assert grace.get(f"/jobs/{mine}/share").status_code == 404
    sent = fields(grace.get(f"/jobs/{runs}/share").text)
    assert grace.post(f"/jobs/{mine}/share", data={**sent, "lasts": "1 day"}).status_code == 404
    assert grace.post(f"/jobs/{runs}/share", data={"lasts": "1 day"}).status_code == 403
    assert grace.post(f"/jobs/{runs}/share", data={**sent, "lasts": "for ever"}).status_code == 422
    assert lived.browser("").get(f"/jobs/{mine}/share").status_code == 401
    # nor by signing one with a token that may not see it
    with lived.store.writing() as connection:
        forged = shares.make(connection, lived.secrets["grace.hopper"], mine, 60, time.time())
    assert forged is not None
    assert _guest(lived, f"/shared/{mine}/{forged.mark}") == (404, _refusal(lived))


def test_a_link_that_was_tampered_with_is_none(lived: Lived, jobs: tuple[str, str, str]) -> None:
    runs, mine, other = jobs
    link = _link(lived, "ada.byron", mine)
    mark = link.rpartition("/")[2]
    with lived.store.engine.connect() as connection:

        def holds(job: str, mark: str) -> bool:
            return shares.opened(connection, job, mark, time.time()) is not None

        assert holds(mine, mark)
        assert not any(holds(job, mark) for job in (runs, other, "", "nothing-there"))
        random = Random(1)
        for i in range(len(mark)):
            letter = random.choice(sorted(set(string.hexdigits + ".-_ ") - {mark[i]}))
            assert not holds(mine, mark[:i] + letter + mark[i + 1 :]), i
            assert not holds(mine, mark[:i] + mark[i + 1 :]), i
        until, token, signature = mark.split(".")
        for odd in (
            "", ".", "..", "...", f"{until}.{token}", f"{until}.{token}.", f"{until}..{signature}",
            f"0{until}.{token}.{signature}", f"+{until}.{token}.{signature}", mark.upper(),
            f"{int(until, 16) + 3600:x}.{token}.{signature}", mark + "\u0661", "f" * 5000,
        ):  # fmt: skip
            assert not holds(mine, odd), odd
        assert shares.opened(connection, mine, mark, float(int(until, 16))) is None
        assert shares.opened(connection, mine, mark, int(until, 16) - 1.0) is not None
    assert _guest(lived, link.replace(mine, other)) == (404, _refusal(lived))


def _until(link: str) -> int:
    """When a link ends."""
    return int(link.rpartition("/")[2].split(".")[0], 16)


def test_it_holds_as_long_as_was_said_or_the_token_it_was_made_with(
    lived: Lived, jobs: tuple[str, str, str]
) -> None:
    now = time.time()
    for lasts, seconds in shares.LASTS_S.items():
        until = _until(_link(lived, "ada.byron", jobs[1], lasts))
        assert now - 1 <= until - seconds <= time.time()
    viewer = lived.viewer("ada.byron")
    short, secret = tokens.create(
        lived.store, "ada.byron", viewer.role, vcs=viewer.vcs, now=now, lasts_s=600.0
    )
    lived.secrets["ada.byron"] = secret
    link = _link(lived, "ada.byron", jobs[1], "7 days")
    assert _until(link) <= now + 600
    assert _guest(lived, link)[0] == 200
    tokens.revoke(lived.store, short.id, time.time())
    assert _guest(lived, link) == (404, _refusal(lived))


def test_a_link_is_listed_and_revoked_alone(lived: Lived, jobs: tuple[str, str, str]) -> None:
    first, second = (_link(lived, "ada.byron", job) for job in jobs[1:])
    by_operator = _link(lived, "olga", jobs[1], "1 hour")
    ada, grace = lived.browser("ada.byron"), lived.browser("grace.hopper")
    listed = ada.get("/api/v1/links").json()
    assert {(link["job_id"], link["made_by"]) for link in listed} == {
        (jobs[1], "ada.byron"), (jobs[2], "ada.byron"), (jobs[1], "an operator")
    }  # fmt: skip
    page = ada.get("/links").text
    for secret in (first, second, by_operator, "olga"):
        assert secret.rpartition(".")[2] not in page + str(listed)
    assert grace.get("/api/v1/links").json() == []
    [mine] = [link["id"] for link in listed if link["job_id"] == jobs[2]]
    sent = fields(grace.get(f"/jobs/{jobs[0]}/share").text)
    assert grace.post("/links", data={**sent, "id": mine}).status_code == 404
    assert _guest(lived, second)[0] == 200
    assert ada.post("/links", data={"id": mine}).status_code == 403  # without the form's word
    gone = ada.post("/links", data={**fields(page), "id": mine}, follow_redirects=False)
    assert gone.status_code == 303
    assert [_guest(lived, link)[0] for link in (first, second, by_operator)] == [200, 404, 200]
    assert len(lived.browser("olga").get("/api/v1/links").json()) == 2


def test_a_token_that_only_reads_makes_no_link(lived: Lived, jobs: tuple[str, str, str]) -> None:
    """It made one, which it could not revoke."""
    viewer, now = lived.viewer("ada.byron"), time.time()
    _, secret = tokens.create(lived.store, viewer.name, Role.VIEWER, vcs=viewer.vcs, now=now)
    reads = TestClient(lived.app, headers={"Authorization": f"Bearer {secret}"})
    page = reads.get(f"/jobs/{jobs[1]}/share")
    assert page.status_code == 200
    assert "Make a link" not in page.text
    assert "/share" not in reads.get(f"/jobs/{jobs[1]}").text
    refused = reads.post(f"/jobs/{jobs[1]}/share", data={"lasts": "1 day"})
    assert refused.status_code == 403
    assert "A viewer&#39;s token reads, and makes no links." in refused.text
    assert lived.browser("olga").get("/api/v1/links").json() == []


def test_an_owner_has_so_many_links_and_no_more(
    lived: Lived, jobs: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "MOST", 3)
    monkeypatch.setattr(shares, "LISTED", 3)
    links = [_link(lived, "ada.byron", jobs[1], lasts) for lasts in shares.LASTS_S]
    ada = lived.browser("ada.byron")
    path = f"/jobs/{jobs[2]}/share"
    sent = {**fields(ada.get(path).text), "lasts": "1 day"}
    refused = ada.post(path, data=sent)
    assert refused.status_code == 429
    assert "3 links to jobs of this owner hold, the most there may be: revoke one.<" in refused.text
    assert [_guest(lived, link)[0] for link in links] == [200] * 3
    _link(lived, "grace.hopper", jobs[0])  # another owner's are counted alone
    listed = lived.browser("olga").get("/api/v1/links").json()
    assert len(listed) == 3, "of four"
    oldest = ada.get("/api/v1/links").json()[-1]["id"]
    with lived.store.writing() as connection:
        for user, ends in (("grace.hopper", False), ("olga", True), ("olga", False)):
            viewer = lived.viewer(user)
            assert shares.revoke(connection, viewer, oldest, time.time()) is ends, user
    _link(lived, "ada.byron", jobs[2])  # there is room again


def test_guessing_is_slowed_down_and_the_guests_of_one_link_are_in_nobodys_way(
    lived: Lived, jobs: tuple[str, str, str]
) -> None:
    """Behind a proxy all of them come from one address."""
    links = [_link(lived, "ada.byron", job) for job in jobs[1:]]
    limits = Limits(rate_per_s=1e-6, burst=2, guesses_per_s=1e-6, guesses_burst=3)
    lived.app = create_app(lived.settings, store=lived.store, limits=limits)
    wrong = links[0][:-1] + ("0" if links[0][-1] != "0" else "1")
    assert [_guest(lived, wrong)[0] for _ in range(5)] == [404, 404, 404, 429, 429]
    assert [_guest(lived, links[0])[0] for _ in range(3)] == [200, 200, 429]
    assert _guest(lived, links[1])[0] == 200


def test_a_guest_sees_one_job_through_every_query(lived: Lived, jobs: tuple[str, str, str]) -> None:
    runs, mine, other = jobs
    with lived.store.writing() as connection:
        made = shares.make(connection, lived.secrets["olga"], mine, 60, time.time())
        assert made is not None
        found = shares.opened(connection, mine, made.mark, time.time())
    assert found is not None
    reads: Reads = lived.app.state.reads
    view = reads.seen_by(found[0])
    assert [job.job_id for job in view.jobs().items] == [mine]
    assert [e.job.job_id for e in view.queue("vision").items if e.job] == [mine]
    labels = {job for node in view.cluster() for gpu in node.gpus for job in gpu.jobs}
    assert not labels & {runs, other}
    assert {share.user for share in view.fairness()} <= {"", "ada.byron"}


def _refusal(lived: Lived) -> str:
    """What is said of every link that does not hold: it tells nothing of the job."""
    said = _guest(lived, "/shared/nothing-there/x")
    assert said[0] == 404
    assert GONE in said[1]
    return said[1]
