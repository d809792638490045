"""One command of one executor: what it would be held to, its grants, its start. Shared by both kinds of caller."""

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launcher.access import guarantees
from launcher.access.ceiling import restrict
from launcher.access.compiled import Row, compiled
from launcher.access.profile import Profile
from launcher.executor import card
from launcher.executor.child import Child, Files
from launcher.executor.running import Running
from launcher.executor.settings import OUTPUT_LIMIT, CommandOptions, Settings
from launcher.executor.steps import Steps
from launcher.value import Value
from oci.refusal import Refused

if TYPE_CHECKING:
    from launcher.grants.token import Grant


class Identity(Value):
    """Whose commands they are: their profile, settings, kept directory, and the name that grants have for them.

    `key` is the executor's own in its set.
    """

    profile: Profile
    settings: Settings
    keep: str
    name: str
    key: str = ""


class IssuedGrant(Value):
    """A grant that was issued for one run: its id, class and target; `token` is the secret that opens it."""

    id: str
    cls: str
    target: str
    run_id: str
    expires: int
    token: str

    def __repr__(self) -> str:
        return f"IssuedGrant(id={self.id!r}, cls={self.cls!r}, target={self.target!r}, run_id={self.run_id!r})"


class Command:
    """A command with everything that decides how it runs."""

    def __init__(self, identity: Identity, argv: Sequence[str], options: CommandOptions) -> None:
        if isinstance(argv, str):
            raise TypeError("a command is a list of words, not one string: ['sh', '-c', text] runs a shell's")
        self.identity = identity
        self.argv = tuple(argv)
        self.options = options
        self.run_id = options.get("run_id")

    def held(self) -> Profile:
        """Return what the bench's ceiling leaves of the profile: a run is held to that; raises Refused."""
        from launcher import bench

        found, refusals = bench.ceiling()
        if refusals:
            raise Refused(refusals)
        return restrict(self.identity.profile, found.ceiling) if found else self.identity.profile

    def report(self) -> tuple[Row, ...]:
        """Return, for each thing it would be held to, whether it is enforced, and by which wall; raises Refused."""
        return compiled(self.held())

    def needed(self) -> tuple[str, ...]:
        """Return the guarantees without which the command would not be started; raises Refused."""
        limited = any(
            getattr(self.identity.settings, name) for name in ("memory", "cpus", "pids", "nofile", "shm_size")
        )
        return (*guarantees.needed(self.held()), *(["resource_limits"] if limited else []))

    def fixed_run_id(self) -> str:
        """Return the run id, decided now if it was not; what a grant is issued for."""
        self.run_id = self.run_id or f"x{secrets.token_hex(6)}"
        return self.run_id

    def _options(self, files: Files, grants: Sequence[str]) -> list[str]:
        me = self.identity
        called = card.name(me.key, otherwise=me.name)
        number = files.add(card.text(me.profile, me.settings, self.options, called=called).encode())
        cwd = self.options.get("cwd")
        words = [f"--card={card.PLACE.format(number)}"]
        words += card.flags(me.settings, keep=me.keep, executor=me.name, cwd=cwd, run_id=self.run_id)
        return words + [f"--grant=fd:{files.add(token.encode())}" for token in grants]

    def start(self, *, grants: Sequence[str], stdin: bool) -> Running:
        """Start card-run; raises OSError when that cannot be, and then nothing was started."""
        files = Files()
        child = Child(
            self._options(files, grants), self.argv, files, stdin=stdin, terminal=self.options.get("terminal")
        )
        return self._running(child, self.options.get("output_limit", OUTPUT_LIMIT))

    def plan(self) -> Steps[dict[str, Any]]:
        """Return what the run would be made of, in steps (card-run(1) `--plan`); raises Refused with every refusal."""
        files = Files()
        # What is for the command's output is not for the plan: neither its limit nor its terminal.
        words = ["--plan", "--json=-", *(["-it"] if self.options.get("terminal") else [])]
        child = Child([*words, *self._options(files, ())], self.argv, files, stdin=False, terminal=None)
        running = self._running(child, OUTPUT_LIMIT)
        found = yield from running.planned()
        values = [{**row, "origin": card.origin(row["origin"])} for row in found["values"]]
        return {**found, "values": values}

    def _running(self, child: Child, limit: int) -> Running:
        seconds = self.identity.settings.stop_seconds
        return Running(child, command=self.argv, stop_seconds=seconds, output_limit=limit)

    def issue(self, cls: str, target: str, *, seconds: int | None, required: Sequence[str]) -> IssuedGrant:
        """Issue a grant for this very run; raises Refused, and then there is none."""
        from launcher import options
        from launcher.grants import approval

        self.fixed_run_id()
        files = Files()
        try:
            request, _ = options.read([*self._options(files, ()), "--", *self.argv])
            token, grant = approval.approve(request, cls=cls, target=target, seconds=seconds, required=tuple(required))
        except Refused as error:
            raise Refused([card.own(one) for one in error.refusals]) from None
        finally:
            files.close()
        return IssuedGrant(
            id=grant.id, cls=grant.cls, target=grant.target, run_id=grant.run, expires=grant.expires, token=token
        )


def revoke(grant: IssuedGrant) -> None:
    """Take a grant back; harmless when it was used, is over or was taken back before.

    Raises Refused (`grant-state`) when that cannot be recorded, and then it is good for as long as it says.
    """
    from launcher.grants import spent, state, token

    decoded: Grant = token.decode(grant.token)[0]
    try:
        with state.opened() as held:
            spent.revoke(held, decoded.nonce, expires=decoded.expires)
    except Refused as error:
        if any(one.reason == "grant-state" for one in error.refusals):
            raise


def merged(options: CommandOptions) -> CommandOptions:
    """Return the options, copied.

    Raises TypeError for one that is none, which no type checker saw, ValueError for an `output_limit` below 0.
    """
    unknown = sorted(options.keys() - CommandOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"no such option of a command: {', '.join(unknown)}")
    limit = options.get("output_limit", OUTPUT_LIMIT)
    if limit < 0:
        raise ValueError(f"output_limit is a number of bytes, and {limit} is none")
    return options.copy()
