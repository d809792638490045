"""`world-seen`: what reached the world so far, one line for each protocol, address and port, with a count.

Asks the world's own process, so it sees the far end of the link: what a wall stopped is not in it.
"""

import socket
import sys

from infra.bench.servers import SEEN_SOCKET


def main() -> int:
    """Print the world's list."""
    with socket.socket(socket.AF_UNIX) as world:
        world.connect(SEEN_SOCKET)
        while data := world.recv(1 << 16):
            sys.stdout.buffer.write(data)
    return 0
