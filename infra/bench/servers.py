"""The world's own process: its addresses, its servers, and what reached it.

Runs as root in the world's network namespace, in the bench's file system. Imports the standard library and siblings.
"""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import NoReturn, cast

from infra.bench import link, nameserver
from infra.bench.web import Site
from infra.bench.world import Host, Service, World

PARTS = Path("/run/bench/world")
REPOSITORIES = Path("/run/bench/git")
SEEN_SOCKET = "/run/world.sock"
READY = b"r"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Sink(asyncio.BufferedProtocol):
    """Reads all that comes into one buffer and forgets it."""

    def __init__(self) -> None:
        self.buffer = bytearray(1 << 18)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's signature
        """Return where to read into."""
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Forget it."""


class _UdpEcho(asyncio.DatagramProtocol):
    """Sends each datagram back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send it back."""
        self.transport.sendto(data, addr)


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def _source(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send without end."""
    block = bytes(1 << 18)
    while True:
        writer.write(block)
        await writer.drain()


async def _seen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say what reached the world, one line for each address, protocol and port: see `link.seen`."""
    listing = await asyncio.get_running_loop().run_in_executor(None, link.seen)
    writer.write(listing.encode())


def _polite(talk: Talk) -> Talk:
    """Return the talk with its ends tidied: a client that leaves in the middle is no error of ours."""

    async def whole(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
            await writer.drain()
        except (OSError, EOFError, ValueError, ssl.SSLError):
            pass
        finally:
            writer.close()

    return whole


class _Servers:
    """Starts the servers of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nameserver = nameserver.Nameserver(world.zone)
        self.kept: list[object] = []
        self.contexts: dict[str, ssl.SSLContext] = {}

    async def start(self) -> None:
        """Start all; every address and port is listened on when this returns."""
        for host in self.world.hosts:
            for service in host.services:
                for address in host.addresses:
                    await self._service(host, service, address)
        resolver = self.world.resolver
        if resolver.mode != "closed":
            for address in resolver.addresses:
                await self._dns(address, 53, silent=resolver.mode == "silent", tcp=resolver.tcp)
        self.kept.append(await asyncio.start_unix_server(_polite(_seen), SEEN_SOCKET))
        os.chmod(SEEN_SOCKET, 0o666)  # noqa: S103 - whoever is in the bench may ask

    async def _service(self, host: Host, service: Service, address: str) -> None:
        """Start one server on one address."""
        loop = asyncio.get_running_loop()
        match service.kind:
            case "dns":
                await self._dns(address, service.port, silent=False, tcp=True)
            case "udp-echo":
                self.kept.append(await loop.create_datagram_endpoint(_UdpEcho, local_addr=(address, service.port)))
            case "sink":
                self.kept.append(await loop.create_server(_Sink, address, service.port))
            case "source":
                await self._tcp(_source, address, service.port)
            case "tcp-echo":
                await self._tcp(_echo, address, service.port)
            case kind:
                site = Site(host, str(REPOSITORIES), metadata=kind == "metadata")
                context = self._context(host) if kind == "https" else None
                await self._tcp(site.serve, address, service.port, context)

    async def _tcp(self, talk: Talk, address: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Listen for TCP connections, with TLS if there is a context."""
        self.kept.append(await asyncio.start_server(_polite(talk), address, port, ssl=context, backlog=1024))

    async def _dns(self, address: str, port: int, *, silent: bool, tcp: bool) -> None:
        """Listen for DNS over UDP and, unless told otherwise, TCP."""
        loop = asyncio.get_running_loop()
        make = partial(nameserver.UdpServer, self.nameserver, silent=silent)
        self.kept.append(await loop.create_datagram_endpoint(make, local_addr=(address, port)))
        if tcp:
            await self._tcp(partial(nameserver.serve_tcp, self.nameserver, silent=silent), address, port)

    def _context(self, host: Host) -> ssl.SSLContext:
        """Return the TLS context with the host's own certificate."""
        name = host.names[0]
        if name not in self.contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(PARTS / f"{name}.crt", PARTS / f"{name}.key")
            self.contexts[name] = context
        return self.contexts[name]


async def _serve(world: World, ready: socket.socket) -> None:
    """Start all servers, say so, serve for ever."""
    servers = _Servers(world)
    await servers.start()
    ready.sendall(READY)
    await asyncio.Event().wait()


def main(world: World, control: socket.socket) -> NoReturn:
    """Be the world: `control` is told when the namespace is there, tells when the link is, and is told when all serve.

    Called in a child that has left the bench's network namespace; never returns.
    """
    try:
        if (PARTS / "git").is_dir():
            shutil.copytree(PARTS / "git", REPOSITORIES)  # the world's own: it can be pushed to
        control.sendall(READY)
        if control.recv(1) == READY:
            link.bring_up_world(world)
            asyncio.run(_serve(world, control))
    except (OSError, subprocess.CalledProcessError, ssl.SSLError) as error:
        os.write(2, f"bench: the world cannot start: {error}\n".encode())
    finally:
        os._exit(1)
