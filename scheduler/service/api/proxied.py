"""Accepts users whom the site's own proxy has signed in, so that OIDC, SAML or LDAP stay with the
site.

The proxy names each person and their groups in headers (oauth2-proxy, mod_auth_openidc). Anybody
can write a header, so these count only on a connection from the proxy: from one of its addresses,
and where the proxy is on this host, from its Unix account, which the kernel knows. On any other
connection the headers are ignored.
"""

from __future__ import annotations

import ipaddress
import os
import pwd
from collections.abc import Callable, Sequence

from fastapi import Request

from scheduler.core.limits import composed
from scheduler.service.api.problems import Problem
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.settings import EVERYBODY, Settings, networks

LONGEST_NAME = 128  # as a token's
FIRST_PERSON = 1000  # user ids below are the system's: whoever the proxy names is none of them
NOBODY = 65_534  # nor the user without rights
NO_ROLE = "no-role"


class Vouched:
    """Finds for whom the site's proxy vouches, by the headers of a request.

    Args:
        peer: returns the Unix user at the other end of a connection within this host, "" for an
            unknown one; None for a connection from another host.
    """

    def __init__(self, settings: Settings, peer: Callable[[Request], str | None]):
        self._settings, self._peer = settings, peer
        self._networks = networks(settings.proxy_addresses)

    def viewer(self, request: Request) -> Viewer | None:
        """Return the person for whom the proxy vouches. Return None where it vouches for nobody;
        the request may still have a token. Raise Problem (400) for a name or headers that cannot be
        used, such as one given twice, and (403) for a person whose groups have no role here.
        """
        if not self.by_proxy(request):
            return None
        name = composed(_once(request, self._settings.proxy_user))
        if not name:
            return None
        if len(name) > LONGEST_NAME or not name.isprintable():
            raise Problem(400, "malformed-request", "the name that the proxy gives is none")
        given = _once(request, self._settings.proxy_groups)
        groups = [group.strip(" \t") for group in given.split(",")]
        return self._of(name, [group for group in groups if group])

    def by_proxy(self, request: Request) -> bool:
        """Return whether a request came on a connection from the proxy."""
        if not self._networks or request.client is None:
            return False
        try:
            address = ipaddress.ip_address(request.client.host)
        except ValueError:
            return False
        address = getattr(address, "ipv4_mapped", None) or address
        if not any(address in network for network in self._networks):
            return False
        peer, account = self._peer(request), self._settings.proxy_account
        return peer == account if account else peer is None

    def _of(self, name: str, groups: Sequence[str]) -> Viewer:
        """Return a person as a viewer, with the most rights that one of their groups has. Raise
        Problem (403) where none of their groups has any.
        """
        rights = [self._settings.proxy_roles.get(group) for group in (EVERYBODY, *groups)]
        account = _account(name)
        if Role.OPERATOR.value in rights:
            return Viewer(name, Role.OPERATOR, os_user=account)
        vcs = [vc for right in rights if isinstance(right, list) for vc in right]
        if vcs:
            return Viewer(name, Role.SUBMITTER, tuple(dict.fromkeys(vcs)), os_user=account)
        if Role.VIEWER.value in rights:
            return Viewer(name, Role.VIEWER)
        raise Problem(
            403,
            NO_ROLE,
            f"you are signed in as {name}, and none of your groups ("
            f"{', '.join(groups) or 'there are none'}) has a role here: an operator gives one in "
            "proxy_roles",
        )


def _account(name: str) -> str:
    """Return the Unix account in which a person's jobs are run, or "" where the service is not
    root, or where no account of a person has that name (one of the system does not count).
    """
    if os.geteuid() != 0:
        return ""  # all jobs run in the service's own, and for one person only: see `guard`
    try:
        uid = pwd.getpwnam(name).pw_uid
        return name if uid >= FIRST_PERSON and uid != NOBODY else ""
    except (KeyError, ValueError):
        return ""


def _once(request: Request, header: str) -> str:
    """Return the value of a header, or "" if it is missing. Raise Problem (400) if it occurs twice,
    since one could come from the visitor, or if it is not UTF-8.
    """
    found = request.headers.getlist(header)
    if len(found) > 1:
        raise Problem(400, "malformed-request", f"{header} is there {len(found)} times")
    try:
        return found[0].encode("latin-1").decode().strip(" \t") if found else ""
    except UnicodeError:
        raise Problem(400, "malformed-request", f"{header} is not UTF-8") from None
