"""The stream of changes: bounded, resumable, and told by whoever appended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from scheduler.backends.events import Event, Kind
from scheduler.service.api.limits import Limits
from scheduler.service.log.store.store import Store
from scheduler.service.pages import live
from scheduler.service.pages.live import EVERYTHING, Change, Line, Tail
from scheduler.service.pages.routes import _tail
from tests.scheduler.service.api.conftest import Service
from tests.waiting import PATIENCE_S, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TURN_S", 0.01)


def _append(store: Store, kind: Kind, job_id: str = "") -> int:
    return store.append([Event(kind, 1.0, job_id)])[0].seq


async def _ends(changes: AsyncIterator[Change]) -> None:
    async for _ in changes:
        pass


async def _next(changes: AsyncIterator[Change]) -> Change:
    return await asyncio.wait_for(anext(changes), PATIENCE_S)


def test_what_is_appended_by_anybody_is_told(store: Store) -> None:
    async def listen() -> None:
        changes = _tail(store).changes(0, "mine")
        hello = await _next(changes)
        assert hello == Change(store.last_seq(), ())
        for kind, job, topics in (
            (Kind.SUBMITTED, "other", ("queue",)),
            (Kind.STARTED, "mine", ("cluster", "job", "queue")),
            (Kind.NODE_SET, "", ("cluster",)),
            (Kind.NODE_ADDED, "", ("cluster",)),
            (Kind.NODE_CHANGED, "", ("cluster",)),
            (Kind.NODE_REMOVED, "", ("cluster",)),
            (Kind.SETTINGS_SET, "", ("queue",)),
        ):
            seq = _append(store, kind, job)
            assert await _next(changes) == Change(seq, topics)
        await changes.aclose()

    asyncio.run(listen())


def test_a_reader_that_comes_back_misses_nothing(store: Store) -> None:
    async def listen() -> None:
        _append(store, Kind.LEASE)
        tail = _tail(store)
        keeper = tail.changes(0)
        await _next(keeper)
        reader = tail.changes(0)
        left_at = (await _next(reader)).seq
        await reader.aclose()
        seq = _append(store, Kind.BUNDLE)
        assert (await _next(keeper)).seq == seq
        back = tail.changes(left_at)
        assert await _next(back) == Change(left_at, ())
        assert await _next(back) == Change(seq, ("models",))
        await back.aclose()
        await keeper.aclose()

    asyncio.run(listen())


def test_from_before_what_is_kept_everything_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEPT", 8)

    async def listen() -> None:
        first = _append(store, Kind.SUBMITTED)
        tail = _tail(store)
        keeper = tail.changes(0)
        await _next(keeper)
        for _ in range(20):
            _append(store, Kind.SUBMITTED)
        while (await _next(keeper)).seq < store.last_seq():
            pass
        late = tail.changes(first)
        await _next(late)
        assert await _next(late) == Change(store.last_seq(), EVERYTHING)
        await late.aclose()
        # and so is a reader from before this process began to listen
        await keeper.aclose()
        fresh = _tail(store).changes(first)
        await _next(fresh)
        assert (await _next(fresh)).topics == EVERYTHING
        await fresh.aclose()

    asyncio.run(listen())


@pytest.mark.parametrize("limit", ["LISTENERS", "OF_ONE"])
def test_one_stream_too_many_is_turned_down_and_later_let_in(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(live, limit, 2)
    monkeypatch.setattr(live, "BEAT_S", 0.01)
    service = Service(store, tmp_path, Limits())
    headers = {"Authorization": f"Bearer {service.secrets['alice']}"}
    with TestClient(service.app, headers=headers) as client, ThreadPoolExecutor(3) as threads:
        streams = [threads.submit(client.get, "/live") for _ in range(2)]

        def listen(user: str) -> int:
            tail = getattr(service.app.state, "tail", None)
            return tail._listeners[user] if tail is not None else 0

        until(lambda: listen("alice") == 2, "both streams to be open", every_s=0.01)
        third = client.get("/live")
        assert third.status_code == 503
        assert third.headers["content-type"] == "application/problem+json"
        assert third.headers["retry-after"] == "30"
        assert third.json()["type"].endswith("too-many-streams")
        bob = {"Authorization": f"Bearer {service.secrets['bob.noyce']}"}
        another = threads.submit(client.get, "/live", headers=bob)
        until(lambda: another.done() or listen("bob.noyce"), "an answer", every_s=0.01)
        monkeypatch.setattr(live, "LIFE_S", 0.0)
        assert another.result().status_code == (200 if limit == "OF_ONE" else 503)
        for stream in streams:
            answer = stream.result()
            assert answer.status_code == 200
            assert "event: hello" in answer.text
        assert client.get("/live").status_code == 200  # there is room again


def test_one_query_serves_all_readers() -> None:
    looks = 0

    def since(seq: int) -> list[Line]:
        nonlocal looks
        looks += 1
        return []

    async def listen() -> None:
        tail = Tail(lambda: 7, since)
        streams = [tail.changes(0, user=f"user {i}") for i in range(50)]
        assert {(await _next(stream)).seq for stream in streams} == {7}
        before, began = looks, time.monotonic()
        await asyncio.to_thread(until, lambda: looks >= before + 3, "some turns")
        assert looks - before <= (time.monotonic() - began) / live.TURN_S + 5
        for stream in streams:
            await stream.aclose()

    asyncio.run(listen())


def test_silence_is_a_broken_connection(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader hears something now and then, though nothing changes, until the stream's end."""
    monkeypatch.setattr(live, "BEAT_S", 0.02)

    async def listen() -> None:
        changes = _tail(store).changes(0)
        nothing = Change(store.last_seq(), ())
        assert [await _next(changes) for _ in range(3)] == [nothing] * 3
        monkeypatch.setattr(live, "LIFE_S", 0.0)
        await asyncio.wait_for(_ends(changes), PATIENCE_S)

    asyncio.run(listen())
