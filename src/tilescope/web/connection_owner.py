"""Who is at the other end of a connection on this machine: on a shared machine every user reaches 127.0.0.1.

/proc/net/tcp has a row for every socket, with its addresses and its user:

    sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid …
    0:  0100007F:C5D0 0100007F:2243 01 00000000:00000000 00:00000000 00000000  1000 …
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterator
from pathlib import Path

Endpoint = tuple[str, int]  # an address and a port
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _USER = 1, 2, 7  # columns


def is_own_user(client: Endpoint | None, server: Endpoint | None) -> bool:
    """Whether a connection comes from a process of this process's user; False if the system cannot tell."""
    if client is None or server is None:
        return False
    names = {(client_name, server_name) for client_name in _names(client) for server_name in _names(server)}
    users = [row[_USER] for row in _rows() if (row[_LOCAL], row[_REMOTE]) in names]
    return users == [str(os.getuid())]


def _names(endpoint: Endpoint) -> Iterator[str]:
    """An endpoint as the tables write it, for version 4 also mapped into version 6.

    >>> [*_names(("127.0.0.1", 8765))]
    ['0100007F:223D', '0000000000000000FFFF00000100007F:223D']
    """
    host, port = endpoint
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    yield f"{_words(address.packed)}:{port:04X}"
    if isinstance(address, ipaddress.IPv4Address):
        yield f"{_words(ipaddress.ip_address(f'::ffff:{host}').packed)}:{port:04X}"


def _words(packed: bytes) -> str:
    """The bytes of an address as the kernel prints them: words of 32 bits in the order of this machine."""
    return "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", packed))


def _rows() -> Iterator[list[str]]:
    for table in _TABLES:
        try:
            lines = table.read_text("ascii").splitlines()[1:]
        except OSError:  # another system
            continue
        yield from (line.split() for line in lines)
