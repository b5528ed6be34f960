"""Names of jobs that differ in numbers only, as one; in the database: none is read for it."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

_NUMBER = re.compile("[0-9]+")


class alike(GenericFunction[str]):
    """A name, every number in it as "#": "sweep-lr#"."""

    type = String()
    inherit_cache = True


def of_name(name: str) -> str:
    """The same, for SQLite, which has no such function itself."""
    return _NUMBER.sub("#", name)


@compiles(alike, "postgresql")
def _by_pattern(element: alike, compiler: Any, **given: Any) -> str:
    clauses = compiler.process(element.clauses, **given)
    return f"regexp_replace({clauses}, '[0-9]+', '#', 'g')"
