"""Stage 2's fixed order: what the container's first own instruction does until the worker's first instruction.

lifeline -> configuration and nonce -> proof -> egress self-test -> descriptors, limits, directory -> privileges and
mounts -> Landlock and its self-test -> seccomp and its self-test -> report -> leave to go -> execve. Any failure:
nothing of the worker runs, the reason reaches the launcher over the report descriptor, exit 125.
"""

import os
import time

from launcher.stage2 import abi, channel, conf, landlock, lifeline, seccomp, selftest, worker
from launcher.stage2.syscalls import Kernel
from oci.refusal import EXIT_REFUSED, Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CONF = "/run/card/stage2.conf"
FILTER = "/run/card-runtime/filter.bpf"
FILTER_RULES = "/run/card-runtime/filter.rules"  # how many rules the filter was compiled from, in decimal
LAST_FD = (1 << 32) - 1


class Stopwatch:
    """The time of each phase in microseconds, in order."""

    __slots__ = ("first", "items", "last")

    def __init__(self) -> None:
        self.items: list[str] = []
        self.first = self.last = time.monotonic_ns()

    def lap(self, phase: str) -> None:
        """End a phase."""
        now = time.monotonic_ns()
        self.items.append(f"{phase}:{(now - self.last) // 1000}")
        self.last = now


def enter(kernel: Kernel, report_fd: int, facts: "list[tuple[str, str]]") -> "tuple[conf.Conf, dict[str, str]]":
    """Arm the lifeline, hear the launcher, and go on to the walls, which see."""
    facts += lifeline.arm(kernel, lifeline.FD)
    hello, proof = channel.receive(report_fd), selftest.PROOF
    if "warm" in hello:
        from launcher.stage2 import warm  # no card that is started for its run comes here

        hello = warm.wait(kernel, conf.parse(kernel.read_file(CONF)), hello, report_fd)
        proof = selftest.TAKEN
    elif "taken" in hello:  # what enters a card that was warm: the proof of its run, not of its start
        proof = selftest.TAKEN
    return walls(kernel, hello, report_fd, facts, proof=proof)


def walls(
    kernel: Kernel,
    hello: "dict[str, list[str]]",
    report_fd: int,
    facts: "list[tuple[str, str]]",
    *,
    proof: str = selftest.PROOF,
) -> "tuple[conf.Conf, dict[str, str]]":
    """Build every wall around this process and test it; return the configuration and the worker's environment.

    `hello` is what the launcher said, `proof` where the proof of its table is. What is seen is added to `facts`. Raises
    Refused or OSError; the process is then walled in as far as it got and good for nothing but saying so.
    """
    watch = Stopwatch()
    config = conf.parse(kernel.read_file(CONF))
    # What `card exec` runs behind the same walls, and where; a card's own start has both from its configuration.
    config.argv = tuple(hello.get("argv", config.argv))
    config.cwd = hello.get("cwd", [config.cwd])[0]
    program, rules = kernel.read_file(FILTER), kernel.read_file(FILTER_RULES).decode()
    env = worker.environment(kernel.read_file("/proc/self/environ"), hello.get("env", []))
    facts += [("env", "scrubbed")]
    watch.lap("read")
    facts += selftest.proof(kernel, config.run, hello.get("nonce", [""])[0], proof)
    facts += selftest.egress(kernel, config)
    watch.lap("egress")
    facts += settle(kernel, config, report_fd)
    watch.lap("settle")
    facts += wall_files(kernel, config)
    watch.lap("landlock")
    facts += [("seccomp", rules), *wall_calls(kernel, program)]
    watch.lap("seccomp")
    facts += [("times_us", ",".join(watch.items)), ("started_us", str(watch.first // 1000))]
    return config, env


def settle(kernel: Kernel, config: "conf.Conf", report_fd: int) -> "list[tuple[str, str]]":
    """Leave nothing open but the standard descriptors and the report, set limits, see that privileges are gone."""
    if report_fd > channel.REPORT_FD:
        kernel.close_range(channel.REPORT_FD, report_fd - 1)
    kernel.close_range(report_fd + 1, LAST_FD)
    os.set_inheritable(report_fd, False)
    selftest.identities(kernel, config.identities)
    worker.limit(kernel, config.rlimits)
    worker.settle(config.cwd)
    return [
        *selftest.privileges(kernel, selftest.status(kernel)),
        *selftest.mounts(kernel, config),
        *selftest.limits(kernel, config.measures),
        *selftest.link(kernel, config.link),
    ]


def wall_files(kernel: Kernel, config: "conf.Conf") -> "list[tuple[str, str]]":
    """Restrict this process to the policy's files, for good, and see that it is."""
    version = landlock.query_abi(kernel)
    errata = landlock.query_errata(kernel)
    ruleset = landlock.build(version, config.policy)
    selftest.control(kernel)
    count = landlock.apply(kernel, ruleset)
    return [
        ("backend", "landlock"),
        ("abi", str(version)),
        ("used", str(ruleset.row.abi)),
        ("errata", errata),
        ("rules", str(count)),
        ("handled_net", abi.names(ruleset.net, abi.NET)),
        ("scoped", abi.names(ruleset.scoped, abi.SCOPE)),
        *selftest.filesystem(kernel, config.outside),
    ]


def wall_calls(kernel: Kernel, program: bytes) -> "list[tuple[str, str]]":
    """Put the filter on this process, for good, and see that it denies."""
    before = selftest.status(kernel)
    seccomp.load(kernel, program)
    after = selftest.status(kernel)
    return selftest.filtered(before, after, denied=seccomp.denies(kernel))


def refusals(error: BaseException) -> "list[tuple[str, str]]":
    """Return the report of a refusal: status, and reason, text and hint of each, side by side."""
    items = [(key, getattr(refusal, key)) for refusal in reasons(error) for key in ("reason", "text", "hint")]
    return [("status", "refused"), *items]


def reasons(error: BaseException) -> "list[Refusal]":
    """Return what an error says, as refusals."""
    if isinstance(error, Refused):
        return list(error.refusals)
    if isinstance(error, OSError):
        return [Refusal("stage2-failed", f"{error.filename}: {error.strerror}")]
    return [Refusal("stage2-failed", f"{type(error).__name__}: {error}")]


def run(kernel: Kernel, report_fd: int) -> int:
    """Enter, report, wait for leave to go and become the worker; return the exit code when that cannot be."""
    facts: list[tuple[str, str]] = []
    try:
        config, env = enter(kernel, report_fd, facts)
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker does not run and the launcher is told
        # What the wall was asked is in the ledger by now, and is not the worker's.
        channel.send(report_fd, [*refusals(error), *(fact for fact in facts if fact[0] == "egress")])
        return EXIT_REFUSED
    channel.send(report_fd, [("status", "ok"), *facts])
    if channel.receive(report_fd) != {"go": ["1"]}:
        return EXIT_REFUSED
    kernel.default_signals()
    code, text = worker.execute(config.argv, env)
    say(f"card-run: {text}")
    return code


def say(line: object) -> None:
    """Write a line to stderr, the worker's: only what the launcher cannot say for us."""
    os.write(2, f"{line}\n".encode("utf-8", "surrogateescape"))


def main() -> "NoReturn":
    """Run stage 2 and end the process: only ever with an exit code that is not the worker's."""
    code = EXIT_REFUSED
    try:
        kernel = Kernel()
        kernel.interruptible()
        if channel.usable(channel.REPORT_FD):
            code = run(kernel, channel.REPORT_FD)
        else:
            from launcher.stage2 import unattended  # no card that card-run starts comes here

            code = unattended.run(kernel)
    except Exception as error:  # noqa: BLE001 - main: said, and the worker does not run
        say(Refusal("launcher-lost", str(error)))
    finally:
        os._exit(code)
