"""What every executor must do, whatever it claims: say truly how a command ended, and hand over what it was given.

Each check returns what is wrong, or "" when nothing is. Without these, no probe's answer could be believed.
"""

import os
import secrets
from collections.abc import Callable, Sequence
from typing import NamedTuple

from launcher.conformance.scene import Scene
from launcher.conformance.subject import Ran, Subject

_ODD = ("", "two  words", "'quoted'", '"$HOME"', "line\nline", "*", "--", "\u00fc")


class Case(NamedTuple):
    """What a check looks at: a subject, its scene, its python3, and where it has the scene's `work` directory."""

    subject: Subject
    scene: Scene
    python: Sequence[str]
    work: str

    def run(self, program: str, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
        """Run a program text."""
        argv = [*self.python, "-I", "-c", program, *words]
        return self.subject.run(argv, stdin=stdin, env=env, cwd=self.work)


def _status(case: Case) -> str:
    for status in (0, 1, 7, 255):
        found = case.run(f"raise SystemExit({status})").status
        if found != status:
            return f"a command that ended with {status} is said to have ended with {found}"
    return ""


def _signal(case: Case) -> str:
    found = case.run("import os; os.kill(os.getpid(), 6); os._exit(0)").status
    return "" if found == 128 + 6 else f"a command that a signal 6 ended is said to have ended with {found}, not 134"


def _streams(case: Case) -> str:
    out, err = b"out\0\r\n\xff" * 20_000, b"err\n" * 5
    program = f"import os\nfor fd, data in ((1, {out[:6]!r} * 20_000), (2, {err!r})):\n    "
    program += "while data:\n        data = data[os.write(fd, data):]"
    found = case.run(program)
    out = out[:6] * 20_000
    wrong = [
        name for name, one, other in (("stdout", found.stdout, out), ("stderr", found.stderr, err)) if one != other
    ]
    return f"{' and '.join(wrong)} did not arrive to the byte" if wrong else ""


def _stdin(case: Case) -> str:
    data = secrets.token_bytes(200_000)
    found = case.run("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", stdin=data)
    return "" if found.stdout == data else "standard input did not arrive to the byte, or had no end"


def _arguments(case: Case) -> str:
    found = case.run("import sys; sys.stdout.buffer.write(repr(sys.argv[1:]).encode())", *_ODD)
    wanted = repr([*_ODD]).encode()
    return "" if found.stdout == wanted else f"the arguments {wanted!r} arrived as {found.stdout!r}"


def _environment(case: Case) -> str:
    value = "a value, \u00fc = 'odd'"
    program = "import os, sys; sys.stdout.buffer.write(os.environb.get(b'CARD_CONFORMANCE_ASKED', b'unset'))"
    found = case.run(program, env={"CARD_CONFORMANCE_ASKED": value})
    return "" if found.stdout == value.encode() else f"a variable that was asked for arrived as {found.stdout!r}"


def _directory(case: Case) -> str:
    found = case.run("import os; print(os.path.samefile('.', os.environ['ASKED']))", env={"ASKED": case.work}).stdout
    return "" if found.strip() == b"True" else "the command did not start in the directory that was asked for"


def _files(case: Case) -> str:
    with open(f"{case.scene.work}/from_here", "w", encoding="utf-8") as file:
        file.write("there and back")
    case.run("import shutil; shutil.copy('from_here', 'from_there')")
    try:
        with open(f"{case.scene.work}/from_there", encoding="utf-8") as file:
            same = file.read() == "there and back"
    except FileNotFoundError:
        same = False
    finally:
        os.unlink(f"{case.scene.work}/from_here")
    return "" if same else "what a command writes to the directory it was given is not there afterwards"


CHECKS: dict[str, Callable[[Case], str]] = {
    "the exit status is the command's": _status,
    "a signal's death is told as 128 + N": _signal,
    "both streams arrive to the byte": _streams,
    "standard input arrives to the byte": _stdin,
    "arguments arrive to the letter": _arguments,
    "a variable that is asked for arrives": _environment,
    "the working directory is the one asked for": _directory,
    "files of the given directory are shared": _files,
}
