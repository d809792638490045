"""`card grant`: issue, show, list and revoke grants, and rotate the key that signs them.

The token goes to standard output, or to a file that only its owner can read; no other verb prints one.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Generator
from typing import Annotated, Any, TextIO

import typer

from launcher import bench, options
from launcher.grants import approval, keys, records, spent, state, token, words
from launcher.grants.token import Grant
from launcher.request import Request
from launcher.run import output
from launcher.verbs import takes
from oci.refusal import Refusal, Refused

app = typer.Typer(help="Open one gated thing for one run: grants, and the key that signs them.", no_args_is_help=True)
_OWN = ("--class", "--target", "--seconds", "--require", "--out")

AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Which = Annotated[str, typer.Argument(help="a grant's id, or its token as --grant takes it: TOKEN, @FILE, fd:N")]


@app.command(**takes.A_RUN)
def issue(
    _: typer.Context,
    cls: Annotated[
        str, typer.Option("--class", help="what is opened: command.start.v1, filesystem.path.write.v1, ...")
    ],
    target: Annotated[str, typer.Option("--target", help="a path, or tcp:HOST:443; none for command.start.v1")] = "",
    seconds: Annotated[
        int | None, typer.Option("--seconds", help="how long it is good (the bench's most: 900)")
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option("--require", help="a guarantee the run must have measured")
    ] = None,
    out: Annotated[str | None, typer.Option("--out", help="write the token to a new file of yours alone")] = None,
) -> None:
    """Print the token of a new grant for the run that card-run's own options describe, --run among them.

    Example: card grant issue --class filesystem.path.write.v1 --target /srv/notes --card c.toml --run r1 -- agent
    """
    request = _request(sys.argv[3:])
    with _receiver(out) as file:
        text, grant = approval.approve(
            request,
            cls=cls,
            target=target.removesuffix("/"),  # as a shell completes a directory
            seconds=seconds,
            required=tuple(require or ()),
        )
        _hand_over(text, grant, file)
    output.say(
        f"GRANT {grant.id} {grant.cls} {grant.target} run={grant.run} for {grant.expires - grant.issued} seconds"
    )


def _request(arguments: list[str]) -> Request:
    """Return the request that the rest of the command line is; this verb's own options are not card-run's."""
    left: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            left += [word, *rest]
            break
        name, equals, _ = word.partition("=")
        if name not in _OWN:
            left.append(word)
        elif not equals and rest:
            rest.pop(0)
    return options.read(left)[0]


@contextlib.contextmanager
def _receiver(out: str | None) -> Generator[TextIO]:
    """Open where the token goes, before there is one; a new file is gone again when what is done with it fails."""
    if out is None:
        yield sys.stdout
        return
    try:
        fd = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        said = f"--out {out!r}: {os.strerror(error.errno or 0)}"
        raise Refused([Refusal("token-unwritable", said, "name a file that is not there yet")]) from None
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            yield file
    except BaseException:
        os.unlink(out)
        raise


def _hand_over(text: str, grant: Grant, file: TextIO) -> None:
    """Write the token; raises Refused when it cannot be, with the grant revoked, since nobody holds it."""
    try:
        file.write(f"{text}\n")
        file.flush()
    except OSError as error:
        with contextlib.suppress(OSError):
            file.close()  # what it still holds would fail once more when the interpreter ends
        with state.opened() as held:
            spent.revoke(held, grant.nonce, expires=grant.expires)
        said = f"the token could not be written: {os.strerror(error.errno or 0)}"
        raise Refused([Refusal("token-unwritable", said, "issue it again, to where there is room")]) from None


@app.command()
def show(which: Which, *, as_json: AsJson = False) -> None:
    """Show what a grant opens, for which run, until when, and whether it is used; never its token.

    Example: card grant show @token
    """
    with state.opened() as held:
        found = records.find(held, _nonce(which), now=_now())
    row = found.to_json()
    if as_json:
        sys.stdout.write(json.dumps(row, indent=2) + "\n")
        return
    for name, value in row.items():
        sys.stdout.write(f"{name:11} {output.printable(_told(name, value))}\n")


def _nonce(which: str) -> str:
    """Return the beginning of a nonce: an id as it stands, a token's own."""
    if which.isalnum() and not which.startswith(token.PREFIX):
        return which
    return token.decode(words.read(which)[0])[0].nonce


def _told(name: str, value: Any) -> str:
    if name in {"issued", "expires"}:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return str(value)


@app.command("list")
def list_grants(*, as_json: AsJson = False) -> None:
    """List the grants that were issued here and are not over: open, used or revoked.

    Example: card grant list --json
    """
    now = _now()
    with state.opened() as held:
        found = records.listed(held, now=now)
    if as_json:
        sys.stdout.write(json.dumps([one.to_json() for one in found], indent=2) + "\n")
        return
    rows: list[tuple[str, ...]] = [("ID", "STATE", "SECONDS", "RUN", "CLASS", "TARGET", "COMMAND")]
    for one in found:
        left = str(max(0, one.grant["expires"] - now))
        rows.append(
            (one.id, one.state, left, *(str(one.grant[name]) for name in ("run", "cls", "target")), one.summary)
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        sys.stdout.write(output.printable(line) + "\n")


@app.command()
def revoke(which: Which) -> None:
    """Take a grant back; refused when a run had used it before.

    Example: card grant revoke 3f9c0a
    """
    with state.opened() as held:
        found = records.find(held, _nonce(which), now=_now())
        spent.revoke(held, found.grant["nonce"], expires=found.grant["expires"])
    output.say(f"GRANT {found.id} revoked")


@app.command()
def rotate(*, now: Annotated[bool, typer.Option("--now", help="end every grant that is out, at once")] = False) -> None:
    """Sign with a new key. Grants that are out stay good until they expire, unless --now.

    Example: card grant rotate --now
    """
    settings, refusals = bench.read()
    if refusals:
        raise Refused(refusals)
    moment = _now()
    with state.opened() as held:
        made = keys.rotate(held, now=moment, grace=0 if now else settings.grant_seconds)
        if now:
            spent.forget(held, now=moment)
    output.say(f"GRANT key {made.id} signs from now on")


def _now() -> int:
    return int(time.time())
