"""Finds which user is at the other end of a loopback connection. The kernel knows, so no password
is needed.

With authentication off everybody who has an account on this machine can reach the service. Linux
lists the user id of each TCP socket in /proc/net/tcp, so the service can still distinguish its own
user from the others.
"""

from __future__ import annotations

import errno
import ipaddress
import pwd
import socket
import struct
from pathlib import Path

ESTABLISHED = "01"


def peer_user(client: tuple[str, int], server: tuple[str, int]) -> str | None:
    """Return the name of the user whose process holds the client's end of a connection within this
    host.

    Return "" when that is unknown: the connection is closed or half closed, or its user has no
    name. Return None when the connection comes from another host.
    """
    try:
        address = ipaddress.ip_address(client[0])
        if _elsewhere(address):
            return None
        version = address.version
        ends = [_spelt(*client), _spelt(*server), ESTABLISHED]
    except (OSError, ValueError):
        return ""
    table = Path("/proc/net/tcp" if version == 4 else "/proc/net/tcp6")
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return ""
    for line in lines:
        columns = line.split()
        # inode 0: no process holds the socket any more, and its user id means nothing
        if columns[1:4] == ends and columns[9] != "0":
            try:
                return pwd.getpwuid(int(columns[7])).pw_name
            except KeyError:
                return ""
    return ""


def _elsewhere(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address belongs to another host; always False where `ip_nonlocal_bind` is
    set. Raise OSError where that cannot be found out.
    """
    address = getattr(address, "ipv4_mapped", None) or address
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as tried:
        try:
            tried.bind((str(address), 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return True
            raise
    return False


def _spelt(host: str, port: int) -> str:
    """Return an address and port as /proc/net/tcp writes them: words of four bytes in the host's
    byte order, in hexadecimal digits.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{port:04X}"
