"""Bearer tokens: making, finding and revoking them. A token's secret is shown once and never
stored.

A secret is 256 random bits, so its SHA-256 is enough to store: there is no dictionary to try
against the digest, and a slow hash would only slow every request. A token is found by that digest;
how long this takes says nothing about the secret.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time

from sqlalchemy import Connection, RowMapping, select

from scheduler.core.limits import composed
from scheduler.service.log.store import chain
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import tokens
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.settings import Settings, SettingsError

PREFIX = "pellucid_"  # so that a leaked secret is recognised by scanners
SECRET_LENGTH = len(PREFIX) + 43  # 32 bytes in URL-safe base64


class TokenError(ValueError):
    """Raised if a token cannot be made or found. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored. Times are seconds since the epoch; None means never.

    `digest`: SHA-256 of its secret; it signs links, and is never shown.
    """

    id: str
    name: str
    role: Role
    vcs: tuple[str, ...]
    os_user: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    digest: str = field(default="", repr=False)

    def holds(self, now: float) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def viewer(self) -> Viewer:
        return Viewer(self.name, self.role, self.vcs, self.os_user)


def digest(secret: str) -> str:
    """Return the digest under which the token of a secret is stored."""
    return hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()


def create(
    store: Store,
    name: str,
    role: Role,
    *,
    vcs: Sequence[str] = (),
    os_user: str = "",
    now: float,
    lasts_s: float | None = None,
) -> tuple[Token, str]:
    """Make a token. Return it with its secret, which is not stored and cannot be shown again.
    `lasts_s`: seconds for which it is valid; None: for ever. Raise TokenError for a name or a
    lifetime that is not accepted.
    """
    with store.writing() as connection:
        return _create(connection, name, role, vcs, os_user=os_user, now=now, lasts_s=lasts_s)


def _create(
    connection: Connection,
    name: str,
    role: Role,
    vcs: Sequence[str],
    os_user: str,
    now: float,
    lasts_s: float | None,
) -> tuple[Token, str]:
    name = composed(name)
    if not name or len(name) > 128 or not name.isprintable():
        raise TokenError(f"name is {name!r}; give 1 to 128 printable characters")
    if lasts_s is not None and lasts_s <= 0:
        raise TokenError(f"a token that lasts {lasts_s:g} s has expired already")
    secret = PREFIX + secrets.token_urlsafe(32)
    expires = None if lasts_s is None else now + lasts_s
    token = Token(
        id=str(uuid.uuid4()),
        name=name,
        role=role,
        vcs=tuple(vcs),
        os_user=os_user,
        created_at=now,
        expires_at=expires,
        revoked_at=None,
    )
    row = {
        "id": token.id,
        "name": name,
        "hash": digest(secret),
        "role": role.value,
        "vcs": json.dumps(list(vcs)),
        "os_user": os_user,
        "created_at": now,
        "expires_at": expires,
    }
    chain.write(connection, tokens, [row])
    return token, secret


def find(connection: Connection, secret: str, now: float) -> Token | None:
    """Return the valid token that has this secret, or None where there is none."""
    if len(secret) != SECRET_LENGTH or not secret.startswith(PREFIX):
        return None
    query = select(tokens).where(tokens.c.hash == digest(secret))
    row = connection.execute(query).mappings().one_or_none()
    token = None if row is None else _token(row)
    return token if token is not None and token.holds(now) else None


def by_id(connection: Connection, token_id: str) -> Token | None:
    """Return the token with this id, valid or not; None where there is none."""
    query = select(tokens).where(tokens.c.id == token_id)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _token(row)


def every(store: Store) -> list[Token]:
    """Return all tokens, oldest first."""
    with store.engine.connect() as connection:
        return _every(connection)


def _every(connection: Connection) -> list[Token]:
    rows = connection.execute(select(tokens).order_by(tokens.c.created_at)).mappings()
    return [_token(row) for row in rows]


def tenants(connection: Connection, now: float) -> list[str]:
    """Return the names of those who have a valid token that may submit jobs, in order of their
    first token.
    """
    query = select(tokens).where(tokens.c.role != Role.VIEWER.value).order_by(tokens.c.created_at)
    found = map(_token, connection.execute(query).mappings())
    return list(dict.fromkeys(token.name for token in found if token.holds(now)))


def rotate(store: Store, name: str, *, now: float, overlap_s: float) -> tuple[Token, str]:
    """Make a new token in place of the latest one with this name, with the same rights and
    lifetime. Every other token of the name and role stays valid for at most `overlap_s` more
    seconds.

    Return the new token with its secret. Raise TokenError where no token of that name is valid.
    """
    until = now + overlap_s
    with store.writing() as connection:
        named = (one for one in _every(connection) if composed(one.name) == composed(name))
        holding = [one for one in named if one.holds(now)]
        if not holding:
            raise TokenError(f"no token of {name!r} holds: make one with `pellucid token create`")
        last = holding[-1]
        lasts_s = None if last.expires_at is None else last.expires_at - last.created_at
        made = _create(
            connection, name, last.role, last.vcs, os_user=last.os_user, now=now, lasts_s=lasts_s
        )
        old = tokens.c.id.in_([token.id for token in holding if token.role is last.role])
        later = tokens.c.expires_at.is_(None) | (tokens.c.expires_at > until)
        chain.change(connection, tokens, old & later, {"expires_at": until})
    return made


def revoke(store: Store, which: str, now: float) -> list[Token]:
    """Revoke a token by its id, or every token of a name (`which`). Return the revoked tokens.
    Raise TokenError where none was left to revoke.
    """
    named = (t for t in every(store) if composed(which) in (t.id, composed(t.name)))
    found = [token for token in named if token.revoked_at is None]
    if not found:
        raise TokenError(f"no token {which!r} that is not revoked already")
    with store.writing() as connection:
        these = tokens.c.id.in_([t.id for t in found])
        chain.change(connection, tokens, these, {"revoked_at": now})
    return found


def guard(settings: Settings, store: Store) -> None:
    """Raise SettingsError where strangers could reach a service that requires no token, where the
    jobs of several people could not be kept apart, or where there is no valid token to enter with.
    """
    if not settings.loopback and not settings.needs_token:
        raise SettingsError(
            f"auth is 'off' and host is {settings.host!r}: without tokens the service listens on "
            "loopback only"
        )
    if settings.named and not settings.needs_token:
        raise SettingsError(
            f"auth is 'off' and server_names is {settings.server_names!r}: behind a proxy "
            "everybody comes from this host, and only a token tells them apart"
        )
    if settings.proxy_addresses and not settings.needs_token:
        raise SettingsError(
            "auth is 'off' and proxy_addresses is given: nobody would be asked who they are"
        )
    if settings.one_account and any(right != "viewer" for right in settings.proxy_roles.values()):
        raise SettingsError(
            "single_tenant is false, and proxy_roles let several people submit: a service that is "
            "not root runs everybody's jobs in its own account; run it as root, or set "
            "single_tenant if they trust each other"
        )
    if settings.one_account:
        with store.engine.connect() as connection:
            names = tenants(connection, time())
        if len(names) > 1:
            raise SettingsError(
                f"single_tenant is false, and {', '.join(names)} have tokens: a service that is "
                "not root runs everybody's jobs in its own account, where they can read and change "
                "each other's and the service's files; run it as root, leave tokens of one name, "
                "or set single_tenant if they trust each other"
            )
    if settings.proxy_addresses:
        return
    if settings.needs_token and not any(token.holds(time()) for token in every(store)):
        raise SettingsError(
            "no token to enter with: make one first with `pellucid token create NAME --role "
            "operator`"
        )


def _token(row: RowMapping) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        role=Role(row["role"]),
        vcs=tuple(json.loads(row["vcs"])),
        os_user=row["os_user"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        digest=row["hash"],
    )
