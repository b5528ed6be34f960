"""Errors as problem details (RFC 9457): one form for every refusal.

`type` names the kind of problem for programs. `detail` is a sentence with the wrong value and with
what is accepted. `errors` lists the fields of the body that were not accepted.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from features.codec import Json

MEDIA_TYPE = "application/problem+json"
_REFUSALS = (401, 403, 413, 421, 429)


class Problem(Exception):
    """Raised for a request that is refused.

    Args:
        kind: last part of the problem's `type`, for programs.
        retry_after_s: seconds after which it is worth trying again; None: unknown.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        retry_after_s: float | None = None,
        errors: Sequence[Mapping[str, Any]] = (),
    ):
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.errors = list(errors)

    @property
    def sentence(self) -> str:
        """Return the problem's detail as a sentence for a page."""
        return f"{self.detail[:1].upper()}{self.detail[1:]}."

    @property
    def refusal(self) -> bool:
        """Return whether the request asked for something not allowed, or for too much. Such a
        refusal goes into the log."""
        return self.status in _REFUSALS


class FieldError(BaseModel):
    """A field of a request that was not accepted, and why."""

    field: str = Field(examples=["body.gpus"])
    message: str = Field(examples=["Input should be greater than or equal to 1"])


class ProblemDetails(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["urn:pellucid:problem:invalid-request"])
    title: str = Field(examples=["Unprocessable Content"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["gpus is 0; give 1 or more"])
    errors: list[FieldError] = []


def responses(*statuses: int) -> dict[int | str, Json]:
    """Return the problems with these statuses in the form in which the OpenAPI document lists a
    route's answers.
    """
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    return {status: {"description": _title(status), "content": content} for status in statuses}


def problem_body(status: int, kind: str, detail: str, errors: Sequence[Any] = ()) -> Json:
    """Return a problem as the JSON that is sent."""
    body = {
        "type": f"urn:pellucid:problem:{kind}",
        "title": _title(status),
        "status": status,
        "detail": detail,
    }
    return {**body, "errors": list(errors)} if errors else body


def answer(problem: Problem) -> JSONResponse:
    """Return the response that answers a request with a problem."""
    headers = {}
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(problem.retry_after_s)))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        problem_body(problem.status, problem.kind, problem.detail, problem.errors),
        problem.status,
        headers,
        MEDIA_TYPE,
    )


RETRY_S = 5.0  # what is not to be had now is worth another try after this
_FULL = (errno.ENOSPC, errno.EDQUOT)


def unavailable(error: BaseException) -> Problem | None:
    """Return the problem (503) for an error that may pass: the disk is full, the database locked,
    read-only or unreachable. Return None for any other error.
    """
    text, why = str(error).splitlines()[0] if str(error) else "", ""
    if isinstance(error, OSError) and error.errno in _FULL:
        why = "the service's disk is full"
    elif isinstance(error, OSError) and error.errno == errno.EROFS:
        why = "the service's disk is read-only"
    elif isinstance(error, OperationalError | InterfaceError | PoolTimeout):
        why = next((why for mark, why in _CAUSES if mark in text), "the database does not answer")
    if not why:
        return None
    return Problem(
        503, "unavailable", f"{why}; nothing was changed, try again", retry_after_s=RETRY_S
    )


_CAUSES = (  # as SQLite and PostgreSQL say it
    ("locked", "the database is locked by somebody else"),
    ("is full", "the service's disk is full"),
    ("No space left", "the service's disk is full"),
    ("readonly", "the database is read-only"),
    ("read-only", "the database is read-only"),
    ("disk I/O error", "the service's disk fails"),
)


def install(app: FastAPI) -> None:
    """Answer a Problem, an HTTP error or a request that does not fit its schema with problem
    details.
    """

    async def ours(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Problem)
        return answer(error)

    async def http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return of_http(error)

    async def invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"field": ".".join(map(str, one["loc"])), "message": one["msg"]}
            for one in error.errors()[:16]
        ]
        # a body that is no JSON at all is malformed, not merely wrong
        malformed = any(one["type"] == "json_invalid" for one in error.errors())
        status = 400 if malformed else 422
        detail = misfit(error.errors()[0])
        kind = "malformed-request" if malformed else "invalid-request"
        return JSONResponse(
            problem_body(status, kind, detail, errors), status, media_type=MEDIA_TYPE
        )

    app.add_exception_handler(Problem, ours)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def of_http(error: HTTPException) -> JSONResponse:
    """Return the response for an error of the framework, such as an address that is not there."""
    status = error.status_code
    kind = _title(status).lower().replace(" ", "-")
    message = str(error.detail)
    detail = _DETAIL.get(status, message) if message == _title(status) else message
    return JSONResponse(
        problem_body(status, kind, detail), status, dict(error.headers or {}), MEDIA_TYPE
    )


def misfit(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a field of a request, as a sentence: "gpus is 0; give 1 or more".

    Args:
        error: an error in the form in which pydantic lists it.
    """
    kind, context = str(error["type"]), error.get("ctx", {})
    where = [str(part) for part in error["loc"][1:]]
    name = ".".join(where) or "the request"
    if kind == "json_invalid":
        return f"the body is no JSON: {context.get('error', error['msg'])}"
    if kind == "missing":
        return f"{name} is missing"
    if kind == "extra_forbidden":
        return f"there is no field {name!r}; the fields are named in /api/v1/openapi.json"
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind == "value_error":
        return f"{name}: {message}" if where else message
    if kind.startswith("too_") and isinstance(error.get("input"), str):
        kind = f"string_{kind}"  # a type that checks the text first is measured as a list is
    shown = repr(error.get("input"))
    secret = where[:1] in (["environment"], ["command"])  # such are in no answer
    value = f" is {shown}" if len(shown) <= MOST_SHOWN and not secret else ""
    return f"{name}{value or ' does not fit'}; give {_wanted(kind, context, message)}"


MOST_SHOWN = 64  # characters of a value that does not fit


def _wanted(kind: str, context: Mapping[str, Any], message: str) -> str:
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(*context.values(), **context)
    if kind in ("literal_error", "enum"):
        return str(context["expected"])
    what = next((what for start, what in _KINDS if kind.startswith(start)), "")
    return what or message.removeprefix("Input should be ").removeprefix("Input should ")


_BOUNDS = {
    "greater_than": "more than {}",
    "greater_than_equal": "{} or more",
    "less_than": "less than {}",
    "less_than_equal": "{} or less",
    "string_too_short": "{min_length} or more characters",
    "string_too_long": "{max_length} characters or fewer",
    "too_short": "{min_length} or more",
    "too_long": "{max_length} or fewer",
    "string_pattern_mismatch": "text like {}",
}
_KINDS = (
    ("int", "a whole number"),
    ("float", "a number"),
    ("finite", "a finite number"),
    ("bool", "true or false"),
    ("string", "text"),
    ("list", "a list"),
    ("dict", "names with values"),
    ("model", "names with values"),
)
_DETAIL = {
    404: "there is nothing at this address",
    405: "this address does not answer that method",
}


def _title(status: int) -> str:
    return HTTPStatus(status).phrase
