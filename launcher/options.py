"""card-run's command line: the options as data, their reading, and their help.

Read here and not by argparse, whose import is 7 ms of a start that is measured against podman's own (DESIGN
"Budgets"). The form is getopt_long(3)'s: `--name VALUE`, `--name=VALUE`, bundled short flags; no abbreviations. What
follows the first `--` is the worker's, to the letter.
"""

import os

from launcher.fs.paths import config_home
from launcher.request import DEFAULT_IMAGE, Request
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = "0.1.0"
FLAG, ONE, MANY = "flag", "one", "many"


class Option(Value):
    """One option: its long name, whether it is a flag, taken once or repeatable, and its help."""

    name: str
    kind: str
    help: str
    metavar: str = ""
    short: str = ""
    choices: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """Return the name of the request's field that it sets."""
        return self.name.replace("-", "_")


OPTIONS = (
    Option(name="card", kind=ONE, metavar="FILE", help="start from this card file; flags override it, lists add"),
    Option(name="image", kind=ONE, metavar="REF", help=f"full reference of a local image ({DEFAULT_IMAGE})"),
    Option(name="grant", kind=MANY, metavar="TOKEN|@FILE|fd:N", help="open one gated thing for this run; see card(1)"),
    Option(name="run", kind=ONE, metavar="ID", help="run id: a-z, 0-9 and _ (default: drawn at random)"),
    Option(name="read", kind=MANY, metavar="PATH", help="readable and executable inside, at the same path"),
    Option(name="read-noexec", kind=MANY, metavar="PATH", help="readable, mounted noexec"),
    Option(name="write", kind=MANY, metavar="DIR", help="writable; the first is the working directory"),
    Option(name="protect", kind=MANY, metavar="PATH", help="read-only inside a --write directory, and held in place"),
    Option(name="git-writable", kind=FLAG, help="leave a checkout's hooks and config writable"),
    Option(name="secret", kind=MANY, metavar="PATH", help="refuse the run if this is inside anything it may reach"),
    Option(name="cwd", kind=ONE, metavar="DIR", help="working directory, inside what the card may reach"),
    Option(name="model-host", kind=ONE, metavar="NAME", help="the one model host of this run, from the policy file"),
    Option(name="allow-host", kind=MANY, metavar="NAME", help="a further host, from the policy file"),
    Option(name="egress", kind=ONE, metavar="FILE", help="the policy file: one hostname per line"),
    Option(name="resolver", kind=ONE, metavar="ADDRESS", help="ask this DNS server instead of the bench's"),
    Option(name="resolve-timeout", kind=ONE, metavar="SECONDS", help="one deadline for all names (3)"),
    Option(
        name="dns", kind=ONE, choices=("question", "none"), help="may the card ask DNS for its own names (question)"
    ),
    Option(name="env", kind=MANY, metavar="NAME[=VALUE]", help="pass a variable; nothing crosses unasked"),
    Option(name="env-file", kind=MANY, metavar="FILE", help="pass the variables of NAME=VALUE lines"),
    Option(name="env-host", kind=FLAG, help="pass the caller's variables, less what could act or leak"),
    Option(
        name="home", kind=ONE, choices=("isolated", "real"), help="HOME: the card's own, or the caller's (isolated)"
    ),
    Option(name="keep", kind=ONE, metavar="DIR", help="keep HOME and /tmp of an isolated card there between runs"),
    Option(name="net", kind=ONE, choices=("pasta", "slirp", "bridge", "none"), help="network of the card (pasta)"),
    Option(name="user", kind=ONE, choices=("keep-id", "root"), help="who the worker is inside (keep-id: you)"),
    Option(
        name="landlock", kind=ONE, choices=("clamp", "exact"), help="a kernel newer than our table: use what we know"
    ),
    Option(name="memory", kind=ONE, metavar="SIZE", help="memory and swap together, in bytes or with k, m, g"),
    Option(name="cpus", kind=ONE, metavar="N", help="processors' worth of time"),
    Option(name="pids", kind=ONE, metavar="N", help="processes and threads"),
    Option(name="nofile", kind=ONE, metavar="N", help="open descriptors of one process"),
    Option(name="tmp-size", kind=ONE, metavar="SIZE", help="each of /tmp, /var/tmp and HOME"),
    Option(name="shm-size", kind=ONE, metavar="SIZE", help="shared memory of the card"),
    Option(name="timeout", kind=ONE, metavar="SECONDS", help="end the worker after this, exit 124"),
    Option(name="stop-timeout", kind=ONE, metavar="SECONDS", help="from SIGTERM until the card is killed (10)"),
    Option(name="limits", kind=ONE, choices=("strict", "best-effort"), help="refuse a limit that cannot be enforced"),
    Option(name="podman-arg", kind=MANY, metavar="OPTION=VALUE", help="pass a harmless option to podman"),
    Option(name="plan", kind=FLAG, help="print the plan and start nothing"),
    Option(name="json", kind=ONE, metavar="FILE|FD", help="write the receipt there; with --plan, print it as JSON"),
    Option(name="events", kind=ONE, metavar="FD", help="for programs: tell all here, as JSON lines, and not on stderr"),
    Option(
        name="executor", kind=ONE, metavar="NAME", help="for programs: who runs this, as its grants are bound to it"
    ),
    Option(name="lifeline", kind=ONE, metavar="FD", help="for programs: end the card once the other end is gone"),
    Option(name="quiet", kind=FLAG, short="q", help="no OK line, notes before the run or table of denials"),
    Option(name="detach", kind=FLAG, short="d", help="print the run id and return; see card(1) ps, logs, attach, stop"),
    Option(name="interactive", kind=FLAG, short="i", help="pass standard input to the worker"),
    Option(name="tty", kind=FLAG, short="t", help="give the worker a terminal"),
    Option(name="help", kind=FLAG, short="h", help="show this"),
    Option(name="version", kind=FLAG, help="show the version"),
)
_LONG = {option.name: option for option in OPTIONS}
_SHORT = {option.short: option for option in OPTIONS if option.short}

_BARE = "card-run [options]"
USAGE = f"{_BARE} [--card FILE] -- COMMAND [ARG...]"
_HEAD = f"""\
usage: {USAGE}

Run one untrusted command in a rootless podman container behind three walls that it can prove.

options:
"""
_PATHS = """
A PATH and a DIR are absolute, as "$PWD/src"; a FILE may start from the working directory.
"""
_EXAMPLES = """
examples:
  card-run -- true
  card-run --write ~/work -- git clone https://github.com/OWNER/REPO
  card-run --write ~/work --model-host api.anthropic.com --env ANTHROPIC_API_KEY -it -- agent
  card-run --read /srv/data --net none --json receipt.json -- python3 check.py
  card-run -d --write ~/work --timeout 3600 -- make nightly
  card-run --plan --write ~/work -- make test
  card new && card-run --card card.toml

exit status: the worker's own; 125 refused, 126 the worker cannot be executed, 127 it was not found
"""


def help_text() -> str:
    """Return what `--help` prints."""
    rows = [(_form(option), option.help) for option in OPTIONS]
    width = max(len(form) for form, _ in rows)
    return _HEAD + "".join(f"  {form:{width}}  {text}\n" for form, text in rows) + _PATHS + _EXAMPLES


def _form(option: Option) -> str:
    short = f"-{option.short}, " if option.short else "    "
    value = "|".join(option.choices) or option.metavar
    return f"{short}--{option.name}" + (f" {value}" if value else "")


class Line:
    """A command line being read: what was set so far, and everything that is wrong with it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.problems: list[Refusal] = []

    def wrong(self, text: str, hint: str = USAGE) -> None:
        """Add one thing that is wrong."""
        self.problems.append(Refusal("bad-command-line", text, hint))

    def set(self, option: Option, value: str | None) -> None:
        """Take one option; `value` is None for a flag."""
        if option.kind == FLAG:
            self.values[option.field] = True
        elif option.choices and value not in option.choices:
            self.wrong(f"--{option.name} takes {' or '.join(option.choices)}, not {value!r}")
        elif option.kind == MANY:
            self.values[option.field] = (*self.values.get(option.field, ()), value)
        elif option.field in self.values:
            self.wrong(f"--{option.name} is given twice")
        else:
            self.values[option.field] = value

    def long(self, word: str, rest: list[str]) -> None:
        """Take `--name`, `--name=VALUE` or `--name VALUE`; a value is taken from the front of `rest`."""
        name, equals, value = word[2:].partition("=")
        option = _LONG.get(name)
        if option is None:
            self._unknown(name, [] if equals else rest)
        elif option.kind == FLAG:
            if equals:
                self.wrong(f"--{name} takes no value")
            self.set(option, None)
        elif equals or rest:
            self.set(option, value if equals else rest.pop(0))
        else:
            self.wrong(f"--{name} lacks its value")

    def _unknown(self, name: str, rest: list[str]) -> None:
        """Refuse a name that is none, with the nearest; what would be its value is no second mistake."""
        from difflib import get_close_matches  # 5 ms that only a mistake pays

        near = [known for known in _LONG if name and known.startswith(name)] or get_close_matches(name, _LONG, 1)
        hint = f"did you mean {' or '.join(f'--{known}' for known in near)}?" if near else USAGE
        self.wrong(f"there is no option --{name}", hint)
        if rest and not rest[0].startswith("-") and not (near and _LONG[near[0]].kind == FLAG):
            rest.pop(0)

    def bare(self, words: list[str]) -> None:
        """Refuse a command without a `--` before it, which takes all that follows."""
        import shlex  # with re, 5 ms that only a mistake pays

        self.wrong(f"{words[0]!r} is no option, and the command stands after --", f"{_BARE} -- {shlex.join(words)}")
        words.clear()

    def short(self, letters: str) -> None:
        """Take a bundle of short flags."""
        for letter in letters:
            option = _SHORT.get(letter)
            if option is None:
                self.wrong(f"there is no option -{letter}")
            else:
                self.set(option, None)


def read(arguments: list[str]) -> tuple[Request, dict[str, bool]]:
    """Return what is asked for, and which of `help` and `version` were; raises Refused with every mistake.

    A card file and the user's defaults are read and merged here (`launcher.cardfile.merge`), where there are any.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    rest, line = arguments[:end], Line()
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            line.long(word, rest)
        elif word.startswith("-") and len(word) > 1:
            line.short(word[1:])
        elif end < len(arguments):
            line.wrong(f"{word!r} stands before --: the command comes after it")
        else:
            rest.insert(0, word)
            line.bare(rest)
    asked = {name: bool(line.values.pop(name, False)) for name in ("help", "version")}
    _seconds(line)
    _nowhere(line)
    if "events" in line.values or "lifeline" in line.values:
        _embedded(line)
    if any(asked.values()):
        return Request(command=()), asked
    card, command = line.values.pop("card", None), tuple(arguments[end + 1 :])
    flags = {**line.values, "command": command} if command else line.values
    return _merged(flags, card, line.problems), asked


def _embedded(line: Line) -> None:
    """Tie card-run to the program that runs it, which then hears of every refusal."""
    from launcher.run import events

    if line.values.get("detach"):
        line.wrong("--events and --lifeline are for a card that ends with its caller, not for -d")
    if "events" in line.values:
        events.listen(line.values["events"])
    if "lifeline" in line.values:
        events.tie(line.values["lifeline"])


def _merged(flags: "dict[str, Any]", card: str | None, refusals: list[Refusal]) -> Request:
    """Return the request that flags, a card file and the user's defaults make; raises Refused."""
    defaults = user_config()
    if card is None and not os.path.lexists(defaults):
        if refusals:
            raise Refused(refusals)
        return Request(**_whole(flags))
    from launcher.cardfile.merge import merge  # 20 ms, TOML and all, that a run by flags does not pay

    try:
        merged = merge(flags, card=card, defaults=defaults)
    except Refused as error:
        raise Refused([*refusals, *error.refusals]) from None
    if refusals:
        raise Refused(refusals)
    return Request(**_whole(merged.values), profile=merged.profile, merged=merged)


def _whole(values: "dict[str, Any]") -> "dict[str, Any]":
    return {"command": (), **values}


def user_config() -> str:
    """Return where a user's defaults are (the XDG base directory specification), whether or not there are any."""
    return f"{config_home()}/card-run/config.toml"


def _seconds(line: Line) -> None:
    text = line.values.pop("resolve_timeout", None)
    try:
        if text is not None:
            line.values["resolve_timeout"] = float(text)
    except ValueError:
        line.wrong(f"--resolve-timeout takes seconds, not {text!r}")


_PLACES = ("read", "read_noexec", "write", "protect", "secret", "cwd", "keep", "egress", "env_file")


def _nowhere(line: Line) -> None:
    """Refuse paths that start from the working directory where that is gone: whoever resolves one later fails."""
    for option in (_LONG[field.replace("_", "-")] for field in _PLACES if field in line.values):
        value = line.values[option.field]
        for path in value if option.kind == MANY else (value,):
            try:
                os.path.abspath(path)
            except OSError:  # getcwd(3)
                line.wrong(f"--{option.name} {path!r} is relative, and the working directory is gone")
