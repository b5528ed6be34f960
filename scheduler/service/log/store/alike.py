"""Job names that differ in numbers only, treated as one name. The database does it, so no name is
read for that.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

_NUMBER = re.compile("[0-9]+")


class alike(GenericFunction[str]):
    """An SQL function: a name with every number in it as "#", as in "sweep-lr#"."""

    type = String()
    inherit_cache = True


def of_name(name: str) -> str:
    """Return a name with every number as "#", for SQLite, which has no such function itself."""
    return _NUMBER.sub("#", name)


@compiles(alike, "postgresql")
def _by_pattern(element: alike, compiler: Any, **given: Any) -> str:
    clauses = compiler.process(element.clauses, **given)
    return f"regexp_replace({clauses}, '[0-9]+', '#', 'g')"
