"""Simulated clients that use the service at the same time, and try again when an answer is lost.

They send HTTP requests to the service's own app, without a socket. A request runs as a thread of an
API process, and dies with that process. Requests and answers are noted in the history.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from benchmarks.chaos.kernel import Kernel, Process

PATIENCE_S = 20.0  # an answer is waited for so long
PREFIX = "/api/v1"
Note = Callable[..., Any]


@dataclass
class Answer:
    """The answer to a request. `status` is None if no answer came back, so that the effect of the
    request is unknown.
    """

    status: int | None = None
    body: Any = None


@dataclass
class Door:
    """Delivers requests: it knows which API processes listen now, by service."""

    kernel: Kernel
    open: dict[int, tuple[Process, Any]] = field(default_factory=dict)

    def ask(self, draw: random.Random, method: str, path: str, **more: Any) -> Answer:
        """Send one request to a random API process that listens. Return its answer."""
        there = [one for one in self.open.values() if not one[0].dead]
        if not there:
            return Answer()
        process, app = draw.choice(there)
        answer = Answer()
        fiber = self.kernel.spawn(
            process, lambda: _drive(_asked(app, answer, method, path, **more)), f"{method} {path}"
        )
        self.kernel.wait(lambda: fiber.done, PATIENCE_S)
        if not fiber.done:
            return Answer()
        if fiber.error is not None and not process.dead:
            raise fiber.error
        return answer


def _drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a request's coroutine to its end. Raise AssertionError if it waits for anything real,
    outside the simulation.
    """
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("a request waited for an event loop")


async def _asked(
    app: Any, answer: Answer, method: str, path: str, *, token: str, body: Any = None, key: str = ""
) -> None:
    headers = [(b"authorization", f"Bearer {token}".encode()), (b"host", b"127.0.0.1")]
    content = b""
    if body is not None:
        content = json.dumps(body).encode()
        headers.append((b"content-type", b"application/json"))
        headers.append((b"content-length", str(len(content)).encode()))
    if key:
        headers.append((b"idempotency-key", key.encode()))
    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": f"{PREFIX}{path}",
        "raw_path": f"{PREFIX}{path}".encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 4711),
        "server": ("127.0.0.1", 8400),
        "state": {},
    }
    parts: list[bytes] = []
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:  # the server says so, whatever it is
        answer.status, answer.body = 500, None
        return
    text = b"".join(parts)
    answer.body = json.loads(text) if text else None
    answer.status = status


class Person:
    """One simulated client, which makes one random request after another.

    Args:
        operator: whether the client is an operator, who may do everything and also changes nodes.
        calm: do not hold a job at once after submitting it, and do not cancel one as it starts.
    """

    def __init__(
        self,
        door: Door,
        note: Note,
        name: str,
        token: str,
        seed: int,
        *,
        operator: bool = False,
        calm: bool = False,
    ):
        self.door, self.note, self.name, self.token, self.calm = door, note, name, token, calm
        self.kernel, self.operator = door.kernel, operator
        self.draw = random.Random(f"person {name} {seed}")
        self.also = random.Random(f"what {name} does, too {seed}")
        self.jobs: list[str] = []
        self.endless: list[str] = []  # that do not end by themselves
        self.keys = 0

    def ask(self, op: str, method: str, path: str, job: str = "", **more: Any) -> Answer:
        """Send a request, and note its beginning and its end in the history. Return the answer."""
        began = self.kernel.clock
        answer = self.door.ask(self.draw, method, path, token=self.token, **more)
        said = {k: v for k, v in more.items() if v}
        self.note(
            "call",
            began=began,
            who=self.name,
            op=op,
            job=job,
            **said,
            status=answer.status,
            answer=_shown(answer.body),
        )
        return answer

    def insist(self, op: str, method: str, path: str, job: str = "", **more: Any) -> Answer:
        """Send a request again and again until an answer comes that settles it. Return that
        answer.
        """
        while True:
            answer = self.ask(op, method, path, job, **more)
            if answer.status is not None and answer.status not in (429, 500, 503):
                return answer
            self.kernel.sleep(self.draw.uniform(0.5, 3.0))

    # --- what they do -----------------------------------------------------------------------

    def live(self, jobs: int, gap_s: float) -> None:
        """Submit a number of jobs, with a mean gap of `gap_s` seconds, and change or cancel some of
        them.
        """
        for _ in range(jobs):
            self.kernel.sleep(self.draw.expovariate(1 / gap_s))
            self.submit()
            if not self.calm and self.also.random() < CANCELLED_AT_ONCE:
                self.cancel_as_it_starts()
            while self.draw.random() < 0.5:
                self.kernel.sleep(self.draw.expovariate(2 / gap_s))
                self.act()
        for job in self.endless:
            self.cancel(job)

    def submit(self) -> None:
        draw = self.draw
        how = draw.choices(["run", "fail", "none"], [10, 2, 1])[0]
        endless = draw.random() < 0.1
        body = {
            "command": ["true", how, f"{1e4 if endless else draw.expovariate(1 / 6):.2f}"],
            "gpus": draw.choices([1, 2, 4], [8, 3, 1])[0],
            "vc": draw.choice(["left", "left", "right"]),
            "share": draw.random() < 0.8,
            "profile": draw.random() < 0.6,
        }
        if draw.random() < 0.2:
            body["time_limit_s"] = round(draw.uniform(1, 8), 1)
        if self.jobs and draw.random() < 0.15:
            body["after_any"] = draw.choice(self.jobs)
        job = self.submitted(body)
        if job:
            self.jobs.append(job)
            self.endless += [job] if endless else []
            if draw.random() < 0.2:  # the answer was lost on its way
                self.ask("submit", "POST", "/jobs", body=body, key=f"{self.name}-{self.keys}")
            if not self.calm and self.also.random() < HELD_AT_ONCE:
                self.hold(job)
            elif body["profile"] and draw.random() < HELD_LOOKED_AT:
                self.hold_while_looked_at(job)

    def submitted(self, body: dict[str, Any]) -> str:
        """Submit a job. Return its id, or "" where the service turns it down."""
        self.keys += 1
        key = f"{self.name}-{self.keys}"
        answer = self.insist("submit", "POST", "/jobs", body=body, key=key)
        return str(answer.body["job_id"]) if answer.status in (200, 201) else ""

    def act(self) -> None:
        """Make one random request about one of the client's jobs or about a node."""
        if self.operator and self.draw.random() < 0.5:
            self.on_a_node()
        elif self.jobs:
            job = self.draw.choice(self.jobs[-4:])
            what = self.draw.choices(
                [self.look, self.cancel, self.change, self.hold, self.release, self.put_off],
                [3, 3, 2, 2, 2, 2],
            )[0]
            what(job)

    def look(self, job: str) -> None:
        self.ask("get", "GET", f"/jobs/{job}", job)

    def cancel(self, job: str) -> None:
        if self.draw.random() < 0.5:
            self.insist("cancel", "POST", f"/jobs/{job}/cancel", job)
        else:
            self.insist("cancel_many", "POST", "/jobs/cancel", job, body={"jobs": [job, "nosuch"]})

    def change(self, job: str) -> None:
        body = self.draw.choice([{"gpus": 1}, {"gpus": 2}, {"share": False}, {"time_limit_s": 5.0}])
        self.insist("change", "PATCH", f"/jobs/{job}", job, body=body)

    def hold(self, job: str) -> None:
        self.insist("hold", "PUT", f"/jobs/{job}/hold", job)

    def hold_while_looked_at(self, job: str) -> None:
        """Hold a job while it is being profiled, and sometimes release it afterwards. Do nothing if
        the job is not being profiled.
        """
        until = self.kernel.clock + LOOKS_S
        while self.kernel.clock < until:
            phase = (self.ask("get", "GET", f"/jobs/{job}", job).body or {}).get("phase")
            if phase == "profiling":
                self.hold(job)
                if self.draw.random() < 0.3:
                    self.kernel.sleep(self.draw.uniform(0.0, 3.0))
                    self.release(job)
            if phase not in WAITS:
                break
            self.kernel.sleep(self.draw.uniform(0.2, 0.6))

    def cancel_as_it_starts(self) -> None:
        """Submit a job that never ends by itself, and cancel it as soon as it has its GPUs. At that
        moment its process may not have been started.
        """
        body = {"command": ["true", "run", "1e4"], "gpus": 1, "vc": "left", "profile": False}
        job, until = self.submitted(body), self.kernel.clock + LOOKS_S
        if not job:
            return
        while self.kernel.clock < until:
            phase = (self.ask("get", "GET", f"/jobs/{job}", job).body or {}).get("phase")
            if phase not in WAITS:
                break
            self.kernel.sleep(self.also.uniform(0.05, 0.3))
        self.cancel(job)

    def release(self, job: str) -> None:
        self.insist("release", "DELETE", f"/jobs/{job}/hold", job)

    def put_off(self, job: str) -> None:
        to = self.draw.choice([-1, 0, 5] if self.operator else [-2, -1, 0])
        self.insist("priority", "PUT", f"/jobs/{job}/priority", job, body={"priority": to})

    def on_a_node(self) -> None:
        """Make a random change: drain, open, add, change or remove a node, or change the service's
        settings.
        """
        draw, node = self.draw, self.draw.randrange(5)
        what = draw.choices(["open", "add", "change", "remove", "set"], [5, 2, 2, 1, 1])[0]
        if what == "open":
            self.set_node(node, draw.random() < 0.5)
        elif what == "add":
            self.keys += 1
            self.add_node(f"more-{self.keys}", draw.choice(["left", "right"]), draw.choice([2, 4]))
        elif what == "change":
            to = draw.choice([{"gpus": 2}, {"gpus": 8}, {"vc": "left"}, {"vc": "right"}])
            self.insist("node_change", "PATCH", f"/nodes/{node}", body=to)
        elif what == "remove":
            self.insist("node_remove", "DELETE", f"/nodes/{node}")
        else:
            self.insist("set", "PUT", "/settings", body={"settings": draw.choice(SETTINGS)})

    def set_node(self, node: int, is_open: bool) -> None:
        self.insist("node", "PUT", f"/nodes/{node}", body={"open": is_open, "reason": "a fan"})

    def add_node(self, name: str, vc: str, gpus: int) -> None:
        body = {"name": name, "vc": vc, "gpus": gpus, "new_vc": True}
        self.insist("node_add", "POST", "/nodes", body=body)

    # --- the end ----------------------------------------------------------------------------

    def tidy_up(self, most_s: float) -> None:
        """Open all nodes, add room, release held jobs, and wait until every job has ended, at most
        for `most_s` seconds.
        """
        for node in self.insist("nodes", "GET", "/nodes").body:
            self.set_node(node["node"], True)
        for vc in ("left", "right"):  # room for each
            self.add_node(f"last-{vc}", vc, 8)
        until = self.kernel.clock + most_s
        while self.kernel.clock < until:
            rows = self.every_job()
            live = [row for row in rows if row["phase"] not in OVER]
            for row in live:
                if row["hold"]:
                    self.release(row["job_id"])
            if not live:
                break
            self.kernel.sleep(2.0)
        for node in self.insist("nodes", "GET", "/nodes").body:
            self.note("node", node=node["node"], vc=node["vc"])
        for row in self.every_job():
            self.note("final", **{name: row[name] for name in SHOWN})

    def every_job(self) -> list[dict[str, Any]]:
        rows, after = [], ""
        while True:
            answer = self.insist("list", "GET", f"/jobs?limit=50{after}")
            rows += answer.body["items"]
            if not answer.body["next"]:
                return rows
            after = f"&after={answer.body['next']}"


SETTINGS: tuple[dict[str, Any], ...] = (  # what a policy does not have is turned down
    {"ageing": 0.0}, {"max_wait_s": 30.0}, {"fairness.weight": 0.5}, {"sharing.max_gpus": 2},
    {"sharing_limit": 1}, {"nonsense": 1},
)  # fmt: skip
HELD_AT_ONCE = 0.2  # of the jobs
HELD_LOOKED_AT = 0.4  # of the others that may be profiled, if they are
CANCELLED_AT_ONCE = 0.25  # as many more jobs as these
LOOKS_S = 6.0  # for as long it is looked whether one is
WAITS = (None, "submitted", "queued")  # None: no answer
OVER = ("ended", "cancelled", "refused", "lost")
SHOWN = (
    "job_id", "owner", "vc", "gpus", "phase", "state", "priority", "hold", "cancel_asked",
    "time_limit_s", "share",
)  # fmt: skip


def _shown(body: Any) -> Any:
    """Return the fields of an answer's body that the history keeps; None if the body is no JSON
    object.
    """
    if not isinstance(body, dict):
        return None
    names = (
        *SHOWN, "needed", "priority_before", "priority_after", "applied", "asked", "over",
        "unknown", "changed", "type", "detail",
    )  # fmt: skip
    return {name: body[name] for name in names if name in body}
