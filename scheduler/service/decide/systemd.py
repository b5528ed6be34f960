"""Messages to systemd that the service is up and alive (sd_notify(3)). Nothing is sent where
systemd did not ask for them.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(message: str) -> None:
    """Send one message (`READY=1`, `WATCHDOG=1`, `STOPPING=1`) to systemd, if it started this
    process and asked for messages.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
        telling.setblocking(False)  # who does not listen keeps nobody from their work
        telling.sendto(message.encode(), address.replace("@", "\0", 1))
