"""SQL expressions for single fields of a job's state in Slurm, which is stored as JSON."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, String, case, func, literal_column
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from scheduler.service.log.store.tables import jobs


class json_field(GenericFunction[str]):
    """An SQL function: the text of a field of a JSON object; NULL where there is none."""

    type = String()
    inherit_cache = True


@compiles(json_field)
def _in_sqlite(element: json_field, compiler: Any, **given: Any) -> str:
    column, name = (compiler.process(clause, **given) for clause in element.clauses)
    return f"json_extract({column}, '$.' || {name})"


@compiles(json_field, "postgresql")
def _in_postgresql(element: json_field, compiler: Any, **given: Any) -> str:
    column, name = (compiler.process(clause, **given) for clause in element.clauses)
    return f"(({column})::json ->> {name})"


def field_of(column: ColumnElement[Any], name: str) -> ColumnElement[str]:
    """Return an SQL expression for the field `name` of the JSON in a column. It gives "" where the
    JSON lacks the field or is empty.
    """
    return func.coalesce(case((column != "", json_field(column, literal_column(f"'{name}'")))), "")


def _field(name: str) -> ColumnElement[str]:
    return json_field(jobs.c.slurm, literal_column(f"'{name}'"))


account: ColumnElement[str] = func.coalesce(_field("account"), "")
qos: ColumnElement[str] = func.coalesce(_field("qos"), "")
# or the virtual cluster, where there is no Slurm
partition: ColumnElement[str] = func.coalesce(func.nullif(_field("partition"), ""), jobs.c.vc)

# what those of one cause have in common
CAUSE = {name: field_of(jobs.c.slurm, name) for name in ("code", "limit", "meaning", "dependency")}
