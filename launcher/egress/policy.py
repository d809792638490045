"""The policy file: the reviewed universe of names, one a line, and the base names that every card gets.

A file that cannot be read, holds no name, lacks a base name or has one bad line refuses the run: there is no form of
this file that means "allow all". Flags pick from it and never add to it.

What was parsed is not cached: the shipped file is read and judged in 0.16 ms, and a cache found by its digest would
take 0.3 (0.2 of it to import SHA-256). A file of 1,000 names takes 2.6 ms, and would take 0.7: not worth a second file
that has to be trusted.
"""

from launcher.egress.names import BadNameError, normalise
from launcher.fs.paths import promptly
from launcher.value import Value
from oci.refusal import Refusal

BASE_NAMES = ("github.com", "api.github.com", "objects.githubusercontent.com")
SIZE_LIMIT = 4 << 20


class Policy(Value):
    """The names of one policy file, each with the line that first lists it."""

    path: str
    lines: dict[str, int]


def read(path: str) -> tuple[Policy, list[Refusal]]:
    """Return the names the file holds and every refusal it earns; the good lines count even where others are bad."""
    try:
        with open(path, "rb", opener=promptly) as file:
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        return Policy(path=path, lines={}), [_unreadable(path, error.strerror or str(error))]
    if len(data) > SIZE_LIMIT:
        return Policy(path=path, lines={}), [_unreadable(path, f"it is larger than {SIZE_LIMIT >> 20} MiB")]
    return parse(data, path)


def _unreadable(path: str, why: str) -> Refusal:
    return Refusal("policy-unreadable", f"egress policy {path}: {why}", "name another with --egress FILE")


def parse(data: bytes, path: str) -> tuple[Policy, list[Refusal]]:
    """Return the names in `data` and every refusal: bad lines with their numbers, missing base names, an empty file."""
    lines: dict[str, int] = {}
    refusals: list[Refusal] = []
    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            name = _parse_line(raw)
        except BadNameError as error:
            shown = raw.decode("utf-8", "backslashreplace").strip().encode("unicode_escape").decode()
            refusals.append(Refusal("policy-line", f"{path}:{number}: {shown[:80]!r} {error}"))
            continue
        if name:
            lines.setdefault(name, number)
    if not lines:
        refusals.append(Refusal("policy-empty", f"egress policy {path} holds no hostname"))
    else:
        missing = [name for name in BASE_NAMES if name not in lines]
        refusals += [
            Refusal("base-name-missing", f"egress policy {path} lacks {name}, which every card gets", f"add {name}")
            for name in missing
        ]
    return Policy(path=path, lines=lines), refusals


def _parse_line(raw: bytes) -> str:
    """Return the name on a line, or "" when it holds only a comment; raises BadNameError."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadNameError("is not UTF-8") from None
    text = text.removesuffix("\r").partition("#")[0].strip(" \t")
    return normalise(text) if text else ""


def choose(policy: Policy, *, model_host: str | None, allow_hosts: list[str]) -> tuple[list[str], list[Refusal]]:
    """Return the names of this run, base names first, and a refusal for each flag that the file does not carry."""
    names = [name for name in BASE_NAMES if name in policy.lines]
    refusals: list[Refusal] = []
    asked = [("--model-host", model_host)] if model_host is not None else []
    asked += [("--allow-host", name) for name in allow_hosts]
    for flag, text in asked:
        try:
            name = normalise(text)
        except BadNameError as error:
            refusals.append(Refusal("bad-hostname", f"{flag} {text!r} {error}"))
            continue
        if name not in policy.lines:
            refusals.append(
                Refusal(
                    "unknown-name", f"{flag} {name} is not in {policy.path}", f"have {name} reviewed into that file"
                )
            )
        elif name not in names:
            names.append(name)
    return names, refusals
