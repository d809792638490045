"""The bench's own addresses, as the kernel tells them: no name may be pinned to one."""

import _socket


def addresses() -> tuple[tuple[str, str], ...]:
    """Return (CIDR, reason) for every address of this machine, from /proc/net/fib_trie and /proc/net/if_inet6."""
    found = [*_v4(), *_v6()]
    return tuple((address, "this bench's own address") for address in dict.fromkeys(found))


def _v4() -> list[str]:
    """Read the local table: a line with the address, then one that says `/32 host LOCAL`."""
    found: list[str] = []
    address = ""
    with open("/proc/net/fib_trie") as file:
        for line in file:
            words = line.split()
            if words[:1] == ["|--"]:
                address = words[1]
            elif words[:3] == ["/32", "host", "LOCAL"] and not address.startswith("127."):
                found.append(address)
    return found


def _v6() -> list[str]:
    try:
        with open("/proc/net/if_inet6") as file:
            digits = [line.split()[0] for line in file]
    except FileNotFoundError:
        return []
    return [_socket.inet_ntop(_socket.AF_INET6, bytes.fromhex(text)) for text in digits if text != "0" * 31 + "1"]
