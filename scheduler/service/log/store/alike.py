"""An SQL function by which job names that differ only in numbers are grouped. The database
evaluates it, so that no name has to be read for it.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import String
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

_NUMBER = re.compile("[0-9]+")


class alike(GenericFunction[str]):
    """An SQL function that returns a name with every number in it replaced by "#", as in
    "sweep-lr#".
    """

    type = String()
    inherit_cache = True


def of_name(name: str) -> str:
    """Return a name with every number replaced by "#". SQLite calls this, as it has no such
    function.
    """
    return _NUMBER.sub("#", name)


@compiles(alike, "postgresql")
def _by_pattern(element: alike, compiler: Any, **given: Any) -> str:
    clauses = compiler.process(element.clauses, **given)
    return f"regexp_replace({clauses}, '[0-9]+', '#', 'g')"
