"""`pellucid links`: lists and revokes the shared links to a user's jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from features.codec import decode
from pipeline.options import spread
from pipeline.printed import aligned, between
from pipeline.remote import Service, print_json
from scheduler.service.api.shapes import Link


@spread
def links(
    service: Service,
    revoke: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Revoke the link with this id. May be repeated."),
    ] = None,
) -> None:
    """List the shared links to your jobs that still work (for an operator: to all jobs), or revoke
    some.

    Whoever has a link can read the explanation of its job without signing in. You make one on the
    service's page /jobs/JOB/share, which first shows what others will see.

    Examples:

      pellucid links

      pellucid links --revoke 5e1f3a90b2c4d6e8
    """
    with service.client() as client:
        for link_id in revoke or ():
            client.revoke_link(link_id)
            if not service.as_json:
                typer.echo(f"{link_id} is revoked")
        if revoke and not service.as_json:
            return
        found, now = client.links(), client.now()
    if service.as_json:
        print_json(found)
        return
    if not found:
        typer.echo("no active links; a job's page makes one: /jobs/JOB/share")
        return
    rows = [
        [
            link.id,
            link.job_id,
            link.job_name,
            link.made_by,
            f"{between(link.made_at, now)} ago",
            f"in {between(now, link.until)}",
        ]
        for link in decode(list[Link], found)
    ]
    for line in aligned([["ID", "JOB", "NAME", "MADE BY", "MADE", "ENDS"], *rows]):
        typer.echo(line)
