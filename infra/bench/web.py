"""The world's HTTP: a greeting, bytes by the million, a model that replies, metadata, and git over HTTP.

As much of HTTP/1.1 (RFC 9112) as curl and git need. Imports the standard library and siblings.
"""

import asyncio
import json
import os
import re
from dataclasses import dataclass

from infra.bench.world import Host

METADATA_SECRET = "metadata-of-the-bench"  # noqa: S105 - what a test looks for, secret to nobody
MODEL_REPLY = json.dumps({"role": "assistant", "content": [{"type": "text", "text": "hello from the model"}]}) + "\n"
GIT_PATH = re.compile(r"/([\w.-]+/[\w.-]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
GIT_BACKEND = "/usr/lib/git-core/git-http-backend"
MAX_BODY = 1 << 28
CHUNK = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its body read."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """One response; `zeros` more bytes follow the body."""

    status: str
    body: bytes
    kind: str = "text/plain"
    zeros: int = 0


@dataclass(frozen=True, slots=True)
class Site:
    """One host's HTTP server: whose name it greets with, where its repositories are, whether it is metadata."""

    host: Host
    repositories: str
    metadata: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until the client closes it."""
        while True:
            request = await _read(reader, writer)
            if request is None:
                return
            await _write(writer, await self._respond(request), head_only=request.method == "HEAD")
            if request.headers.get("connection", "").lower() == "close":
                return

    async def _respond(self, request: Request) -> Response:
        """Choose what to say."""
        git = GIT_PATH.fullmatch(request.path)
        if git and git[1] in self.host.repositories:
            return await _git(request, f"{self.repositories}/{git[1]}.git", git[2])
        if git:
            return Response("404 Not Found", b"no such repository\n")
        return self._say(request)

    def _say(self, request: Request) -> Response:
        """Choose what to say to a request that is not git's."""
        if self.metadata:
            return Response("200 OK", f"{METADATA_SECRET}\n".encode())
        if request.path.startswith("/bytes/") and request.path[7:].isdigit():
            return Response("200 OK", b"", kind="application/octet-stream", zeros=int(request.path[7:]))
        if request.method == "POST" and request.path.startswith("/v1/"):
            return Response("200 OK", MODEL_REPLY.encode(), kind="application/json")
        if request.method == "POST":
            return Response("200 OK", f"received {len(request.body)} bytes\n".encode())
        name = self.host.names[0] if self.host.names else self.host.addresses[0]
        return Response("200 OK", f"hello from {name}\n".encode())


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    """Read one request; None when the client has closed the connection."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(min(int(headers.get("content-length", "0")), MAX_BODY))
    path, _, query = target.partition("?")
    return Request(method, path, query, headers, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """Read a chunked body."""
    body = bytearray()
    while True:
        length = int((await reader.readline()).partition(b";")[0], 16)
        body += await reader.readexactly(length)
        await reader.readline()
        if length == 0:
            return bytes(body)


async def _write(writer: asyncio.StreamWriter, response: Response, *, head_only: bool) -> None:
    """Write one response."""
    length = len(response.body) + response.zeros
    head = f"HTTP/1.1 {response.status}\r\nContent-Type: {response.kind}\r\nContent-Length: {length}\r\n\r\n"
    writer.write(head.encode() + (b"" if head_only else response.body))
    left = 0 if head_only else response.zeros
    while left > 0:
        writer.write(CHUNK[:left])
        left -= len(CHUNK)
        await writer.drain()
    await writer.drain()


async def _git(request: Request, repository: str, service: str) -> Response:
    """Hand one request to git-http-backend(1), as a CGI program (RFC 3875), and return what it says."""
    environment = {
        "PATH": os.defpath,
        "GIT_PROJECT_ROOT": repository,
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{service}",
        "QUERY_STRING": request.query,
        "REQUEST_METHOD": request.method,
        "CONTENT_TYPE": request.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(request.body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
        "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
    }
    pipe = asyncio.subprocess.PIPE
    backend = await asyncio.create_subprocess_exec(GIT_BACKEND, stdin=pipe, stdout=pipe, env=environment)
    output, _ = await backend.communicate(request.body)
    head, _, body = output.partition(b"\r\n\r\n")
    lines = (line.partition(":") for line in head.decode("latin-1").split("\r\n"))
    headers = {name.lower(): value.strip() for name, _, value in lines}
    return Response(headers.get("status", "200 OK"), body, kind=headers.get("content-type", "text/plain"))
