"""Finds which user is at the other end of a loopback connection. The kernel knows, so no password
is needed.

With authentication off everybody who has an account on this machine can reach the service. Linux
knows the user id of each TCP socket, so the service can still distinguish its own user from the
others. The kernel is asked for the one socket (`man 7 sock_diag`), which takes as long however many
connections there are. Where it does not answer that, its table of all sockets, /proc/net/tcp, is
read.
"""

from __future__ import annotations

import errno
import ipaddress
import pwd
import socket
import struct
from functools import cache
from pathlib import Path

Address = tuple[str, int]  # host and port

ESTABLISHED = 1
NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLMSG_ERROR = 4, 20, 1, 2
HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, sender
REQUEST = struct.Struct("=BBBxI")  # inet_diag_req_v2: family, protocol, extensions, states
SOCKET = struct.Struct(">HH16s16s12s")  # inet_diag_sockid: ports, addresses, interface and cookie
STATE = struct.Struct("=xB")  # the beginning of inet_diag_msg
OWNER = struct.Struct("=52x3I2I")  # all of inet_diag_msg: the last two are user id and inode
ANY_INTERFACE_NO_COOKIE = bytes(4) + b"\xff" * 8
ANSWERS_S = 1.0  # the kernel answers in microseconds
FOR_NOW = errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM


def peer_user(client: Address, server: Address) -> str | None:
    """Return the name of the user whose process holds the client's end of a connection within this
    host.

    Return "" when that is unknown: the connection is closed or half closed, or its user has no
    name. Return None when the connection comes from another host.
    """
    try:
        if _elsewhere(ipaddress.ip_address(client[0])):
            return None
        find = _asked if _answers() else _looked_up
        uid = find(client, server)
        return "" if uid is None else pwd.getpwuid(uid).pw_name
    except (OSError, ValueError, KeyError):
        return ""


@cache
def _answers() -> bool:
    """Return whether the kernel answers questions about one socket: it may lack the module, or a
    sandbox may forbid to ask. Raise OSError where that cannot be found out for now.
    """
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), ANSWERS_S) as client,
        ):
            return _asked(client.getsockname(), server.getsockname()) is not None
    except OSError as error:
        if error.errno in FOR_NOW:
            raise
        return False


def _asked(client: Address, server: Address) -> int | None:
    """Ask the kernel for the user id of the client's socket. Return None where no process holds it.
    Raise OSError where the kernel cannot be asked.
    """
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    ends = [socket.inet_pton(family, host) for host, _ in (client, server)]
    body = REQUEST.pack(family, socket.IPPROTO_TCP, 0, 1 << ESTABLISHED)
    body += SOCKET.pack(client[1], server[1], *ends, ANY_INTERFACE_NO_COOKIE)
    header = HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWERS_S)
        kernel.sendto(HEADER.pack(*header) + body, (0, 0))
        answer, (sender, _) = kernel.recvfrom(4096)
    kind, found = HEADER.unpack_from(answer)[1], answer[HEADER.size :]
    if sender != 0 or kind == NLMSG_ERROR or len(found) < OWNER.size:
        return None
    *_, uid, inode = OWNER.unpack_from(found)
    # inode 0: no process holds the socket any more, and its user id means nothing
    return uid if STATE.unpack_from(found) == (ESTABLISHED,) and inode else None


def _looked_up(client: Address, server: Address) -> int | None:
    """Look the client's socket up in the kernel's table of all sockets. Return its user id; None
    where no process holds it. Raise OSError where the table cannot be read.
    """
    ends = [_spelt(*client), _spelt(*server), f"{ESTABLISHED:02X}"]
    table = Path("/proc/net/tcp6" if ":" in client[0] else "/proc/net/tcp")
    for line in table.read_text().splitlines()[1:]:
        columns = line.split()
        if columns[1:4] == ends and columns[9] != "0":  # inode 0: as above
            return int(columns[7])
    return None


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
