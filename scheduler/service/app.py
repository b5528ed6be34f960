"""Makes the web app: the API and the pages, with all that they need."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from threading import Lock

import psutil
from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

from features.codec import Json
from scheduler.backends.local.program import Missing
from scheduler.service.api import (
    acting,
    cluster,
    followed,
    jobs,
    links,
    nodes,
    output,
    problems,
    session,
    system,
)
from scheduler.service.api.auth import COOKIE, Authenticator
from scheduler.service.api.changes import Changes
from scheduler.service.api.limits import Limits
from scheduler.service.api.lives import Lives
from scheduler.service.api.problems import Problem, ProblemDetails
from scheduler.service.api.proxied import NO_ROLE
from scheduler.service.api.questions import Questions
from scheduler.service.api.refusals import Refusals, not_there
from scheduler.service.api.request_guard import LOOPBACK_NAMES, RequestGuard
from scheduler.service.api.tokens import guard
from scheduler.service.api.turns import Turns
from scheduler.service.api.writer import Room, Writer
from scheduler.service.log.header import service_clock
from scheduler.service.log.store.paging import BadCursor
from scheduler.service.log.store.reads import Reads, UnknownJob
from scheduler.service.log.store.soundness import Soundness
from scheduler.service.log.store.store import Store
from scheduler.service.log.unread import Unread
from scheduler.service.metrics import Counts, Metrics
from scheduler.service.settings import Settings

log = logging.getLogger("pellucid.api")
PREFIX = "/api/v1"

DESCRIPTION = """
Submit jobs, see where they stand, and ask why.

Send `Authorization: Bearer TOKEN`. A submitter sees their own jobs in full and others' only as
"another job"; an operator sees everything. Every error is a problem document (RFC 9457). Lists are
paged: pass `next` of one page as `after` of the next.
"""


def create_app(
    settings: Settings,
    *,
    store: Store | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] | None = None,
    pages: bool = True,
    counts: Counts | None = None,
) -> FastAPI:
    """Return the web app over a database: the API and, with `pages`, the pages.

    Args:
        store: the database; by default the one of the settings.
        clock: returns the time on the backend's clock, seconds since the epoch.
        counts: counts of the service's processes, for `/metrics`.

    Raise SettingsError as `guard` does.
    """
    limits = limits or Limits()
    own = store is None
    store = store or Store(settings.database)
    guard(settings, store)
    if own:
        store.go_on()  # else whoever hands it in has seen to that

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(writer.close)
        looked.close()
        if own:
            store.close()

    app = FastAPI(
        title="Pellucid",
        version="1",
        description=DESCRIPTION,
        docs_url=None,  # the viewers FastAPI ships load their scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # FastAPI's own answer holds up all others while it is made
        lifespan=lifespan,
        routes=list(_routes(pages)),
    )
    writer, looked = Writer(store), Missing()
    now = clock or service_clock(store)
    changes = Changes(
        store,
        writer,
        now,
        room=Room(settings.max_waiting, int(settings.max_payload_mib * 2**20)),
        missing=looked if settings.backend == "local" else lambda *_: "",
        follows=settings.follows,
        mails=bool(settings.mail_program),
        reads_commands=settings.read_progress,
    )
    if settings.backend == "local":
        changes.host_mib = psutil.virtual_memory().total / 2**20
    app.state.settings = settings
    app.state.limits = limits
    app.state.store = store
    app.state.reads = Reads(store.engine, settings.state_dir / "bundles")
    app.state.authenticator = Authenticator(settings, store, limits)
    app.state.changes = changes
    app.state.refusals = Refusals(changes, app.state.reads, limits)
    app.state.counts = counts or Counts()
    app.state.metrics = Metrics(store, app.state.counts)
    app.state.turns = Turns()
    app.state.questions = Questions(store, limits.answer_s)
    app.state.soundness, app.state.lives = Soundness(store.engine.url), Lives()
    app.state.unread = Unread(store, follows=settings.follows)

    problems.install(app)
    _answer_our_errors(app, pages=pages)
    names = [*LOOPBACK_NAMES, settings.host, *settings.named]
    hosts = names if settings.loopback else None
    app.add_middleware(RequestGuard, hosts=hosts, body_bytes=limits.body_bytes)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    described = Lock()

    def description(_: Request) -> Response:
        with described:
            return JSONResponse(app.openapi())

    app.add_route(f"{PREFIX}/openapi.json", description, include_in_schema=False)
    return app


@cache
def _routes(pages: bool) -> list[BaseRoute]:
    """Return the routes of the API and, with `pages`, of the pages. A process makes them only once,
    because that takes a fifth of a second.
    """
    every = APIRouter()
    for part in (jobs, output, acting, links, cluster, nodes, followed):
        every.include_router(part.router, prefix=PREFIX)
    every.include_router(system.router)
    every.include_router(session.router)
    if pages:
        from scheduler.service.pages import acting as acting_pages
        from scheduler.service.pages import (
            arrays,
            comparing,
            editing,
            operations,
            proposing,
            routes,
            sharing,
            submitting,
        )

        for page in (
            routes,
            comparing,
            editing,
            proposing,
            operations,
            acting_pages,
            arrays,
            sharing,
            submitting,
        ):
            every.include_router(page.router)
    return every.routes


def _answer_our_errors(app: FastAPI, *, pages: bool) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        led_in = error.status == 401 and _is_a_person(request)
        if error.refusal and not (led_in and COOKIE not in request.cookies):
            await run_in_threadpool(app.state.refusals.note, request, error)
        if led_in:
            return RedirectResponse(session.login_path(request), 303)
        if error.kind == NO_ROLE and pages and _is_a_person(request):
            from scheduler.service.pages.routes import refused_page

            return refused_page(request, error.sentence, error.status)
        return problems.answer(error)

    async def unknown_job(request: Request, error: Exception) -> Response:
        await run_in_threadpool(app.state.refusals.missed, request, str(error))
        return problems.answer(
            Problem(404, "not-found", await run_in_threadpool(not_there, request, str(error)))
        )

    async def bad_cursor(_: Request, error: Exception) -> JSONResponse:
        return problems.answer(Problem(422, "invalid-request", str(error)))

    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404 and pages and _is_a_person(request):
            from scheduler.service.pages.routes import refused_page

            return refused_page(request, "There is no page at this address.", 404)
        return problems.of_http(error)

    app.add_exception_handler(Problem, refused)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(UnknownJob, unknown_job)
    app.add_exception_handler(BadCursor, bad_cursor)


def _is_a_person(request: Request) -> bool:
    """Return whether a browser asks for a page, so that a login form helps more than a problem
    document.
    """
    wanted = request.headers.get("accept", "")
    return (
        request.method == "GET"
        and "text/html" in wanted
        and not request.url.path.startswith(f"{PREFIX}/")
    )


def _openapi(app: FastAPI) -> Json:
    """Return the OpenAPI document of the app. It lists for every route the problems that the route
    may answer with.
    """
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        parts = schema.setdefault("components", {}).setdefault("schemas", {})
        details = ProblemDetails.model_json_schema(ref_template="#/components/schemas/{model}")
        parts.update(details.pop("$defs", {}))
        parts["ProblemDetails"] = details
        for name in ("HTTPValidationError", "ValidationError"):
            parts.pop(name, None)
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, item in schema["paths"].items():
            for operation in item.values():
                operation["responses"].update(
                    {str(s): r for s, r in problems.responses(*_EVERYWHERE).items()}
                )
                if path.startswith(PREFIX):
                    operation["security"] = [{"token": []}]
        app.openapi_schema = schema
    return app.openapi_schema


_EVERYWHERE = (400, 401, 403, 413, 421, 422, 429, 500, 503)
