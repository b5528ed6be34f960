"""Logging in to the pages: the token goes into a cookie that scripts and other sites cannot use."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from scheduler.service.api.auth import COOKIE, SAYS_WHENCE, Authenticator, form, scheme
from scheduler.service.api.problems import Problem

router = APIRouter(include_in_schema=False)
LASTS_S = 12 * 3600


def login_path(request: Request) -> str:
    """Return the address of the login page that, after logging in, leads back to what was
    requested.
    """
    asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"{request.scope.get('root_path', '')}/login?next={quote(asked, safe='/')}"


@router.post("/login")
def login(request: Request) -> Response:
    """Take a token from the login form (`token`, `next`), keep it in a cookie and go on to
    `next`; or show the form again, where the token is not valid."""
    authenticator: Authenticator = request.app.state.authenticator
    fields = form(request)
    authenticator.same_origin(request)
    goal = local_path(fields.get("next", ""))
    try:
        authenticator.enter(request, fields.get("token", "").strip())
    except Problem as problem:
        if problem.status != 401:
            raise
        request.app.state.refusals.note(request, problem)
        return RedirectResponse(f"/login?wrong=1&next={quote(goal, safe='/')}", 303)
    answer = RedirectResponse(goal, 303)
    answer.set_cookie(
        COOKIE,
        fields["token"].strip(),
        max_age=LASTS_S,
        httponly=True,
        samesite="strict",
        secure=scheme(request) == "https",
    )
    return answer


@router.post("/logout")
def logout(request: Request) -> Response:
    """Delete the cookie and show the login form. Raise Problem (403) unless one of our own pages
    asks for it.
    """
    authenticator: Authenticator = request.app.state.authenticator
    if not SAYS_WHENCE & set(request.headers):
        raise Problem(403, "cross-site-request", "this request does not say which page made it")
    authenticator.from_our_page(request)
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(COOKIE)
    return answer


def local_path(asked: str) -> str:
    """Return the address to go to after logging in: the one asked for if it is a path of this
    service, else "/".
    """
    try:
        parts = urlsplit(asked)
    except ValueError:
        return "/"
    ours = not parts.scheme and not parts.netloc and asked.startswith("/")
    return asked if ours and not asked.startswith(("//", "/\\")) and asked.isprintable() else "/"
