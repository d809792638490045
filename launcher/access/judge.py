"""What makes an access profile's fields well formed: one judgement for a table of a file and for a value made in code.

Pure: looks at no file. Every problem is found at once, each with the place it stands at, so that a linter can point
there. Imports nothing heavy: the nearest known word is sought only once something is wrong.
"""

from launcher.fs.paths import unprintable
from launcher.value import Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

DENY, GATED, ALLOW = "deny", "gated", "allow"
# Closed first: a level's index is what access_for answers.
LEVELS = (DENY, GATED, ALLOW)
ISOLATED, REAL = "isolated", "real"
HOMES = (ISOLATED, REAL)
SANDBOXED, UNCONFINED = "sandboxed", "unconfined"
ISOLATIONS = (SANDBOXED, UNCONFINED)
LEVELLED = ("workspace_read", "workspace_write", "host_read", "host_write", "network", "command")
# Each key that takes one word, with its words, the closed one first; that one is what a missing key means.
WORDS = {**dict.fromkeys(LEVELLED, LEVELS), "home": HOMES, "isolation": ISOLATIONS}
KEYS = ("workspace", *WORDS, "ack_unconfined", "roots")
ROOT_WORDS = {"read": LEVELS, "write": LEVELS}
ROOT_KEYS = ("path", *ROOT_WORDS)
# What a profile holds is what can be written, and so read: the pairs of which the first may not exceed the second.
_PAIRS = (("workspace_write", "workspace_read"), ("host_write", "host_read"))


class Problem(Value):
    """One thing that is wrong: the keys that lead to it (`("roots", 0, "read")`), a sentence, and a hint or ""."""

    where: tuple[str | int, ...]
    text: str
    hint: str = ""

    @property
    def key(self) -> str:
        """Return the place as it is written: `roots[0].read`."""
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.where).removeprefix(".")


def problems(fields: "Mapping[str, object]", roots: "Sequence[Mapping[str, object]]") -> list[Problem]:
    """Return everything that is wrong with a profile's fields, `roots` aside, and with its roots."""
    found = [*_unknown(fields, KEYS, ()), *_words(fields, WORDS, ()), *_ack(fields)]
    if "workspace" in fields:
        found += path_problems(fields["workspace"], ("workspace",))
    found += _wider(fields, _PAIRS, ())
    for index, root in enumerate(roots):
        found += _root(root, ("roots", index))
    return [*found, *_twice(fields, roots)]


def _root(root: "Mapping[str, object]", where: tuple[str | int, ...]) -> "Iterator[Problem]":
    yield from _unknown(root, ROOT_KEYS, where)
    yield from _words(root, ROOT_WORDS, where)
    if "path" not in root:
        yield Problem(where=where, text="a root has no path", hint="give it one: path = '/srv/data'")
    else:
        yield from path_problems(root["path"], (*where, "path"))
    yield from _wider(root, (("write", "read"),), where)


def _unknown(
    table: "Mapping[str, object]", known: tuple[str, ...], where: tuple[str | int, ...]
) -> "Iterator[Problem]":
    for key in table:
        if key not in known:
            text = f"{key!r} is not a key here"
            yield Problem(where=(*where, key), text=text, hint=nearest(key, known))


def _words(
    table: "Mapping[str, object]", words: "Mapping[str, tuple[str, ...]]", where: tuple[str | int, ...]
) -> "Iterator[Problem]":
    for key, choices in words.items():
        value = table.get(key, choices[0])
        if not isinstance(value, str) or value not in choices:
            text = f"{value!r} is not {', '.join(choices[:-1])} or {choices[-1]}"
            hint = nearest(value, choices) if isinstance(value, str) else ""
            yield Problem(where=(*where, key), text=text, hint=hint)


def _ack(fields: "Mapping[str, object]") -> "Iterator[Problem]":
    ack = fields.get("ack_unconfined", False)
    unconfined = fields.get("isolation", SANDBOXED) == UNCONFINED
    if not isinstance(ack, bool):
        yield Problem(where=("ack_unconfined",), text=f"{ack!r} is not true or false")
    elif unconfined and not ack:
        hint = "set ack_unconfined = true if no wall at all is what is meant"
        yield Problem(where=("isolation",), text="unconfined is stated without ack_unconfined", hint=hint)
    elif ack and not unconfined:
        yield Problem(where=("ack_unconfined",), text="it acknowledges unconfined, and isolation is not unconfined")


def path_problems(value: object, where: tuple[str | int, ...]) -> "list[Problem]":
    """Return what keeps a value from being an absolute path in normal form: one spelling for each place."""
    if not isinstance(value, str):
        return [Problem(where=where, text=f"{value!r} is not a path")]
    if unprintable(value):
        return [Problem(where=where, text=f"{value!r} holds a control character or is not UTF-8")]
    if not value.startswith("/"):
        return [Problem(where=where, text=f"{value!r} is relative", hint="write the absolute path")]
    if value == "/":
        return [Problem(where=where, text="/ is the whole bench", hint="host_read and host_write speak of that")]
    if not normal(value):
        return [Problem(where=where, text=f"{value!r} is not in normal form", hint="leave out //, . and ..")]
    return []


def normal(path: str) -> bool:
    """Return whether a path is absolute and has no empty, `.` or `..` part: only so can two be compared as text."""
    return path == "/" or (path.startswith("/") and not {"", ".", ".."} & set(path[1:].split("/")))


def _wider(
    table: "Mapping[str, object]", pairs: "Iterable[tuple[str, str]]", where: tuple[str | int, ...]
) -> "Iterator[Problem]":
    """Yield a problem where writing is wider than reading: a mount that can be written can be read."""
    for write, read in pairs:
        written, seen = table.get(write, DENY), table.get(read, DENY)
        if written in LEVELS and seen in LEVELS and LEVELS.index(str(written)) > LEVELS.index(str(seen)):
            text = f"{write} = {written} with {read} = {seen} contradicts itself: what can be written can be read"
            yield Problem(where=(*where, write), text=text, hint=f"let {read} be at least {written}")


def _twice(fields: "Mapping[str, object]", roots: "Sequence[Mapping[str, object]]") -> "Iterator[Problem]":
    seen: dict[object, str] = {fields["workspace"]: "the workspace"} if isinstance(fields.get("workspace"), str) else {}
    for index, root in enumerate(roots):
        path = root.get("path")
        if not isinstance(path, str):
            continue
        if path in seen:
            text = f"{path} is {seen[path]} already, and one place has one answer"
            yield Problem(where=("roots", index, "path"), text=text)
        seen.setdefault(path, f"roots[{index}]")


def nearest(word: str, known: "Iterable[str]") -> str:
    """Return a hint that names the known word a misspelt one is nearest to, else all of them."""
    import difflib  # 5 ms that only a mistake pays

    choices = list(known)
    close = difflib.get_close_matches(word.lower().replace("-", "_"), choices, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"one of {', '.join(choices)}"
