"""`pellucid token`: makes, lists and revokes access tokens of the service. It works on the
database, on the service's host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.console import user_errors
from pipeline.errors import UserError
from pipeline.options import CONFIG, PRINT_JSON, spread
from pipeline.remote import print_json

if TYPE_CHECKING:
    from scheduler.service.api.tokens import Token
    from scheduler.service.log.store.store import Store

DAY_S = 86_400.0
HELP = """Make, list and revoke the tokens that let people use the service.

Example:

  pellucid token create alice --vc vision --os-user alice
"""
token = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The options of a command that works on the service's database: which one, and whether the
    output is JSON."""

    database: Annotated[
        str | None,
        typer.Option(
            help="Database of the service: sqlite:///PATH or postgresql://USER@HOST/NAME. Left "
            "out: that of --config or PELLUCID_DATABASE, otherwise of the service that you run on "
            "this host."
        ),
    ] = None
    config: CONFIG = None
    as_json: PRINT_JSON = False

    @contextmanager
    def opened(self, *, make: bool = False) -> Iterator[Store]:
        """Yield the service's database, open, and close it at the end. If it is a SQLite file
        that does not exist, create it with `make`, and raise StoreError without."""
        from pipeline.serving import database_served
        from scheduler.service.log.store.schema import prepare
        from scheduler.service.log.store.store import Store, must_exist
        from scheduler.service.settings import read_settings

        named = self.database
        if named is None and self.config is None and "PELLUCID_DATABASE" not in os.environ:
            named = database_served()
        found = read_settings(self.config, database=named).database
        if not make:
            must_exist(found)
        store = Store(found)
        try:
            prepare(store)
            yield store
        finally:
            store.close()


@token.command()
@spread
def create(
    name: Annotated[
        str, typer.Argument(help="Name of the user, who owns the jobs submitted with the token.")
    ],
    stored: Stored,
    role: Annotated[
        str,
        typer.Option(
            help="Rights of the user. viewer: see the cluster and the user's own jobs. submitter: "
            "also submit, change and cancel them. operator: everything."
        ),
    ] = "submitter",
    vc: Annotated[
        list[str] | None,
        typer.Option(
            help="Virtual cluster (queue) to which a submitter may submit. May be repeated. Left "
            "out: to none."
        ),
    ] = None,
    os_user: Annotated[
        str,
        typer.Option(
            help=("Unix user as which the user's jobs run. Needed if the service runs as root.")
        ),
    ] = "",
    days: Annotated[
        float,
        typer.Option(min=0, help="Days until the token expires. 0: never.", show_default=True),
    ] = 365.0,
) -> None:
    """Make a token (the password by which a user signs in) and print it. It is shown only this
    once: the service keeps only a hash.

    Examples:

      pellucid token create alice --vc vision --os-user alice

      pellucid token create root --role operator --days 30
    """
    with user_errors(), stored.opened(make=True) as store:
        from pipeline.serving import asks_no_token
        from scheduler.service.api import tokens
        from scheduler.service.log.store.visibility import Role

        if role not in list(Role):
            raise UserError(f"--role {role}: use one of {', '.join(Role)}")
        _check_os_user(os_user)
        _check_vcs(store, vc or [])
        now = time.time()
        lasts_s = days * DAY_S or None
        made, secret = tokens.create(
            store, name, Role(role), vcs=vc or (), os_user=os_user, now=now, lasts_s=lasts_s
        )
        off = asks_no_token(store.engine.url.render_as_string(hide_password=False))
    _show(made, secret, stored.as_json)
    if made.role is Role.SUBMITTER and not made.vcs:
        typer.echo("It names no virtual cluster (--vc), so it can submit nowhere.", err=True)
    if off:
        typer.echo("The service that runs asks for no token; `auth: on` has it ask.", err=True)


@token.command()
@spread
def rotate(
    name: Annotated[str, typer.Argument(help="Name of the user who gets a new token.")],
    stored: Stored,
    overlap_days: Annotated[
        float, typer.Option(min=0, help="Days for which the older tokens still work.")
    ] = 1.0,
) -> None:
    """Make a new token for a user, with the role, virtual clusters, Unix user and lifetime of
    the latest valid one. All older tokens of that user and role, also those for other virtual
    clusters, expire after --overlap-days at the latest.

    Example:

      pellucid token rotate alice --overlap-days 7
    """
    with user_errors(), stored.opened() as store:
        from scheduler.service.api import tokens

        made, secret = tokens.rotate(store, name, now=time.time(), overlap_s=overlap_days * DAY_S)
    _show(made, secret, stored.as_json)


@token.command(name="list")
@spread
def list_tokens(stored: Stored) -> None:
    """List all tokens, the oldest first: id, user, rights and expiry. Secrets are not kept."""
    with user_errors(), stored.opened() as store:
        from scheduler.service.api import tokens

        found = tokens.every(store)
    if stored.as_json:
        print_json([asdict(one) for one in found])
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rows = Table(box=None, pad_edge=False)
    for heading in ("TOKEN", "NAME", "ROLE", "VCS", "OS USER", "STATE"):
        rows.add_column(heading)
    for one in found:
        cells = one.id, one.name, one.role.value, ", ".join(one.vcs), one.os_user, _state(one)
        rows.add_row(*map(escape, cells))
    Console(width=None, highlight=False).print(rows)


@token.command()
@spread
def revoke(
    which: Annotated[
        str,
        typer.Argument(help="Id of one token; or the name of a user, for all tokens of that user."),
    ],
    stored: Stored,
) -> None:
    """Revoke tokens: they stop working at once. Jobs that were submitted with them go on."""
    with user_errors(), stored.opened() as store:
        from scheduler.service.api import tokens

        gone = tokens.revoke(store, which, time.time())
    if stored.as_json:
        print_json([asdict(one) for one in gone])
        return
    for one in gone:
        typer.echo(f"revoked {one.id} of {one.name}")


def _show(made: Token, secret: str, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(made), "secret": secret})
        return
    until = "" if made.expires_at is None else f", {_state(made)}"
    summary = f"Token {made.id} for {made.name} ({made.role.value}{until})"
    typer.echo(f"{summary}. Its secret is shown only now:", err=True)
    typer.echo(secret)


def _check_os_user(name: str) -> None:
    import pwd

    if name:
        try:
            pwd.getpwnam(name)
        except KeyError:
            raise UserError(f"--os-user {name}: there is no such user on this machine") from None


def _check_vcs(store: Store, named: list[str]) -> None:
    from scheduler.service.log.store.reads import Reads
    from scheduler.service.log.store.visibility import Role, Viewer

    there = Reads(store.engine).seen_by(Viewer("", Role.VIEWER)).vcs()
    if unknown := [vc for vc in named if there and vc not in there]:  # none before the first start
        raise UserError(f"--vc {unknown[0]}: there are: {', '.join(there)}")


def _state(one: Token) -> str:
    if one.revoked_at is not None:
        return "revoked"
    if one.expires_at is None:
        return "holds"
    left_s = one.expires_at - time.time()
    return f"{left_s / DAY_S:.1f} days left" if left_s > 0 else "expired"
