"""Who asks much waits for themselves; a page and the API count for the same user."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from scheduler.service.api.auth import COOKIE
from scheduler.service.api.questions import ANALYST, Questions
from scheduler.service.api.turns import Turn, Turns
from scheduler.service.log.store.store import Store
from tests.scheduler.service.api.conftest import Service


async def asking(turns: Turns, user: str, began: list[str]) -> Turn:
    turn = await turns.take(user)
    began.append(user)
    return turn


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_used_least_lately_goes_first() -> None:
    async def played() -> list[str]:
        turns, began = Turns(at_once=2, used={"ann": 9.0}), list[str]()
        first = await turns.take("zoe")
        second = await turns.take("yan")
        tasks = [
            asyncio.create_task(asking(turns, who, began)) for who in ("ann", "ann", "bob", "cid")
        ]
        await settled()
        assert began == []
        first.end()
        second.end()
        await settled()
        assert began == ["bob", "cid"]
        (await tasks[2]).end()
        (await tasks[3]).end()
        await settled()
        for task in tasks:
            if task.done():
                task.result().end()
        await settled()
        return began

    assert asyncio.run(played()) == ["bob", "cid", "ann", "ann"]


def test_one_user_leaves_room_for_another() -> None:
    async def played() -> list[str]:
        turns, began = Turns(at_once=3), list[str]()
        tasks = [asyncio.create_task(asking(turns, "ann", began)) for _ in range(16)]
        await settled()
        assert began == ["ann", "ann"]
        await asking(turns, "bob", began)
        for task in tasks:
            task.cancel()
        await settled()
        return began

    assert asyncio.run(played()) == ["ann", "ann", "bob"]


def test_who_does_not_wait_any_more_holds_up_nobody() -> None:
    async def played() -> int:
        turns = Turns(at_once=1)
        first = await turns.take("ann")
        gone = asyncio.create_task(turns.take("bob"))
        late = asyncio.create_task(turns.take("cid"))
        await settled()
        first.end()  # bob's turn, who is told of it no more
        gone.cancel()
        await settled()
        with suppress(asyncio.CancelledError):
            await gone
        (await asyncio.wait_for(late, 10.0)).end()
        first.end()
        return len(turns._busy) + len(turns._waiting)

    assert asyncio.run(played()) == 0


def test_who_cannot_wait_leaves_nothing_behind() -> None:
    """As a coroutine that no loop runs."""
    turns = Turns(at_once=1)
    first = asyncio.run(turns.take("ann"))
    with pytest.raises(RuntimeError):
        turns.take("bob").send(None)
    first.end()
    asyncio.run(turns.take("cid")).end()
    assert not turns._busy
    assert not turns._waiting


def test_who_waits_for_the_analyst_has_no_turn(store: Store) -> None:
    assert store.take(ANALYST, "one", 60.0) is not None

    async def played() -> None:
        turns = Turns(at_once=1)
        await turns.take("ann")
        asked = asyncio.create_task(Questions(store, 5.0).ask("why", {"job_id": "j"}, "ann"))
        (await asyncio.wait_for(turns.take("bob"), 10.0)).end()
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked

    asyncio.run(played())


def test_pages_and_the_api_count_for_the_same_user(service: Service) -> None:
    turns: Turns = service.app.state.turns
    job_id = service.submit("alice", 100)
    assert turns.used.get("alice") is None  # what is changed is counted elsewhere
    client = service.by("alice")
    assert client.get("/api/v1/jobs").status_code == 200
    assert set(turns.used) == {"alice"}
    turns.used.clear()
    token = client.headers["authorization"].partition(" ")[2]
    page = service.by("vera")
    del page.headers["authorization"]
    page.cookies.set(COOKIE, token)
    for path in ("/jobs", f"/jobs/{job_id}", "/causes"):
        assert page.get(path).status_code == 200, path
    assert set(turns.used) == {"alice"}
    assert not turns._busy
