"""`card-run`: parse the command line, judge it, and either print the plan, refuse, or perform it.

The hot path: nothing slow is imported here before podman runs (a unit test pins the set of modules).
"""

import argparse
import sys

from launcher import launch
from launcher.request import DEFAULT_IMAGE, Request
from launcher.run import perform
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

EXAMPLES = """\
examples:
  card-run -- true
  card-run --write ~/work -- git clone https://github.com/OWNER/REPO
  card-run --write ~/work --model-host api.anthropic.com --env ANTHROPIC_API_KEY -it -- agent
  card-run --read /srv/data --net none --json receipt.json -- python3 check.py
  card-run --plan --write ~/work -- make test

exit status: the worker's own; 125 refused, 126 the worker cannot be executed, 127 it was not found
"""


_REPEATED = ("read", "read_noexec", "write", "allow_host", "env", "podman_arg")


class _Parser(argparse.ArgumentParser):
    """Says a bad command line as every other refusal is said, exit 125."""

    def error(self, message: str) -> "NoReturn":
        hint = "card-run [options] -- COMMAND [ARG...]; --help shows the options and examples"
        raise Refused([Refusal("bad-command-line", message, hint)])


def parser() -> argparse.ArgumentParser:
    """Return card-run's own command line."""
    made = _Parser(
        prog="card-run",
        usage="card-run [options] -- COMMAND [ARG...]",
        description="Run one untrusted command in a rootless podman container behind three walls that it can prove.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--image", default=DEFAULT_IMAGE, metavar="REF", help=f"full reference of a local image ({DEFAULT_IMAGE})")
    add("--run", metavar="ID", help="run id: a-z, 0-9 and _ (default: drawn at random)")
    add("--read", action="append", default=[], metavar="PATH", help="readable and executable inside, at the same path")
    add("--read-noexec", action="append", default=[], metavar="PATH", help="readable, mounted noexec")
    add("--write", action="append", default=[], metavar="DIR", help="writable; the first is the working directory")
    add("--cwd", metavar="DIR", help="working directory, inside what the card may reach")
    add("--model-host", metavar="NAME", help="the one model host of this run; listed in the policy file")
    add("--allow-host", action="append", default=[], metavar="NAME", help="a further host; listed in the policy file")
    add("--egress", metavar="FILE", help="the policy file: one hostname per line")
    add("--resolver", metavar="ADDRESS", help="ask this DNS server instead of the bench's")
    add("--resolve-timeout", type=float, default=3.0, metavar="SECONDS", help="one deadline for all names (3)")
    add("--dns", choices=("question", "none"), default="question", help="may the card ask DNS for its own names")
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="pass a variable; nothing crosses unasked")
    add("--net", choices=("pasta", "none"), default="pasta", help="network of the card (pasta)")
    add("--user", choices=("keep-id", "root"), default="keep-id", help="who the worker is inside (keep-id: you)")
    add("--podman-arg", action="append", default=[], metavar="OPTION=VALUE", help="pass a harmless option to podman")
    add("--plan", action="store_true", help="print the plan and start nothing")
    add("--json", metavar="FILE|FD", help="write the receipt there; with --plan, print the plan as JSON")
    add("-q", "--quiet", action="store_true", help="print refusals only")
    add("-i", "--interactive", action="store_true", help="pass standard input to the worker")
    add("-t", "--tty", action="store_true", help="give the worker a terminal")
    return made


def request(arguments: list[str]) -> Request:
    """Return what a command line asks for; raises Refused for one that cannot be read.

    Everything after the first `--` is the worker's, to the letter.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    given: "dict[str, Any]" = vars(parser().parse_args(arguments[:end]))
    for name in _REPEATED:
        given[name] = tuple(given[name])
    return Request(command=tuple(arguments[end + 1 :]), **given)


def main() -> int:
    """Run card-run; returns the exit status of the process."""
    try:
        return _main(sys.argv[1:])
    except Refused as error:
        return perform.exit_refused(error)


def _main(arguments: list[str]) -> int:
    asked = request(arguments)
    judged, refusals = launch.judge(asked)
    if refusals or asked.plan:
        from launcher import report

        return report.plan(judged, refusals, as_json=asked.json is not None, show=asked.plan)
    return perform.perform(judged, quiet=asked.quiet, receipt=asked.json)


if __name__ == "__main__":
    sys.exit(main())
