"""`pellucid order`: shows which jobs wait, in order, and the terms that make each place."""

from __future__ import annotations

from typing import Annotated

import typer

from features.codec import decode
from pipeline.options import ONE_VC, spread
from pipeline.printed import aligned
from pipeline.remote import Service, print_json
from scheduler.explain.explanation import Order


@spread
def order(
    service: Service,
    vc: ONE_VC = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, max=500, help="Largest number of jobs to show of each virtual cluster."
        ),
    ] = 50,
) -> None:
    """Show the waiting jobs in the order in which they are to start, and how each place is
    computed.

    Jobs of higher priority go first. Among jobs of equal priority, the one with the smallest sum of
    terms goes first; terms are seconds, such as the predicted duration (+) and a credit for the
    time waited (-). You see your own jobs; an operator sees all. In Slurm, `sprio` shows the like.

    Example:

      pellucid order --vc vision
    """
    with service.client() as client:
        orders = client.order(vc, limit=limit)
    if service.as_json:
        print_json(orders)
        return
    for one in orders:
        for line in lines(decode(Order, one)):
            typer.echo(line)


def lines(one: Order) -> list[str]:
    """Return lines of text about the waiting jobs of a virtual cluster, in order, and then
    about those that are held."""
    if one.unavailable:
        return [f"{one.vc}: unavailable: {one.unavailable}"]
    held = [f"held, in no line: {job.job_id} ({job.gpus} GPUs)" for job in one.held]
    head = f"{one.vc}: {one.waiting:,} waiting"
    if not one.rows:
        return [head + (", none of them yours" if one.waiting else ""), *held]
    from scheduler.explain.words import signed

    whats = list(dict.fromkeys(term.what for row in one.rows for term in row.terms))
    table = [["PLACE", "JOB", "GPUS", "PRIORITY", *map(str.upper, whats), "SUM"]]
    for row in one.rows:
        terms = {term.what: term.seconds for term in row.terms}
        known = [signed(terms[what]) if what in terms else "-" for what in whats]
        start = [str(row.position), row.job_id, str(row.gpus), str(row.priority)]
        table.append([*start, *known, signed(sum(terms.values()))])
    return [head, *aligned(table), *held]
