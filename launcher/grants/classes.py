"""What a grant can open: the classes, the one spelling of each class's targets, and what of them a wall can hold.

The rule: a target is exact or it is refused. What no wall can hold to the letter is `unsupported`, never widened to
what one could hold. File-system targets are resolved here; the rest is pure.
"""

import os
import stat

from launcher.access.judge import normal
from launcher.access.scope import COMMAND, HOST, NETWORK, READ, TREE, WRITE, peer
from launcher.fs.paths import unprintable
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PATH_FORM, TREE_FORM, HOST_FORM = "path", "tree", "host"
START = "command.start.v1"
PROXY_TARGET = "network.proxy-target.v1"
BROAD = "network.broad.v1"
PORT = 443
_WORD = {READ: "read", WRITE: "write"}


class Class(Value):
    """One class of grants: its name, the kind of access it opens, and for the file system its form."""

    name: str
    kind: str
    form: str = ""

    def scope(self, target: str) -> str:
        """Return what `access_for` is asked about a target."""
        if self.kind == COMMAND:
            return "*"
        return f"{TREE}{target}" if self.form == TREE_FORM else target


CLASSES = {
    one.name: one
    for one in (
        Class(name=START, kind=COMMAND),
        *(
            Class(name=f"filesystem.{form}.{word}.v1", kind=kind, form=form)
            for form in (PATH_FORM, TREE_FORM, HOST_FORM)
            for kind, word in _WORD.items()
        ),
        Class(name=PROXY_TARGET, kind=NETWORK),
        Class(name=BROAD, kind=NETWORK),
    )
}


class Anchor(Value):
    """The deepest part of a path that exists: its path, device and inode, and its file type (stat(2), S_IFMT)."""

    path: str = ""
    device: int = 0
    inode: int = 0
    kind: int = 0


def find(name: str) -> Class:
    """Return a class by its name; raises Refused (`unsupported`) for one that is none."""
    found = CLASSES.get(name)
    if found is None:
        from launcher.access.judge import nearest

        raise Refused([Refusal("unsupported", f"{name!r} is no class of grants", nearest(name, CLASSES))])
    return found


def normalise(cls: Class, text: str, *, command: str) -> str:
    """Return a target in its one spelling; raises Refused (`malformed`) for what is no target of the class.

    A path is resolved through its links. The target of a start is the command's digest, whatever is given.
    """
    if cls.kind == COMMAND:
        return command
    if cls.form == HOST_FORM:
        if text != HOST:
            _malformed(cls, text, HOST)
        return HOST
    if cls.form:
        path = text.removeprefix(TREE) if cls.form == TREE_FORM else text
        if not normal(path) or unprintable(path):
            _malformed(cls, text, "an absolute path, without //, . and ..")
        return os.path.realpath(path)
    try:
        found = peer(text.lower())
    except Refused:
        _malformed(cls, text, "tcp:HOST:PORT" if cls.name == PROXY_TARGET else "tcp:*:PORT")
    if bool(found.host) != (cls.name == PROXY_TARGET):
        _malformed(cls, text, "tcp:HOST:PORT" if cls.name == PROXY_TARGET else "tcp:*:PORT")
    return text.lower()


def _malformed(cls: Class, text: str, wanted: str) -> "NoReturn":
    raise Refused([Refusal("malformed", f"{text!r} is no target of {cls.name}", f"write {wanted}")])


def anchor(path: str) -> Anchor:
    """Return the deepest part of a path that exists, found step by step from the root.

    Raises Refused: `target-changed` when a part is a symbolic link (the path was resolved before), `unsupported` when a
    part cannot be looked at.
    """
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    reached = ""
    try:
        for name in path.strip("/").split("/"):
            try:
                above, fd = fd, os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            except (FileNotFoundError, NotADirectoryError):
                break
            except OSError as error:
                text = f"{reached}/{name}: {os.strerror(error.errno or 0)}"
                raise Refused([Refusal("unsupported", text, "a grant is for what its issuer can see")]) from None
            os.close(above)
            reached += f"/{name}"
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                text = f"{reached} is a symbolic link now"
                raise Refused([Refusal("target-changed", text, "look at the path, then issue the grant again")])
        found = os.fstat(fd)
    finally:
        os.close(fd)
    kind = stat.S_IFMT(found.st_mode)
    return Anchor(path=reached or "/", device=found.st_dev, inode=found.st_ino, kind=kind)


def unsupported(cls: Class, target: str, found: Anchor) -> list[Refusal]:
    """Return why no wall could hold a target to the letter, apart from what the bench and the run decide."""
    why: tuple[str, str] | None = None
    if cls.form == HOST_FORM:
        why = "no wall opens the whole bench and nothing else", "grant the trees that are needed"
    elif cls.form == TREE_FORM and (found.path != target or not stat.S_ISDIR(found.kind)):
        why = f"{target} is not a directory that exists", "a tree is mounted as it is: make it first"
    elif cls.form == PATH_FORM and found.path != target:
        why = f"{target} does not exist", "a file is mounted as it is: make it first"
    elif cls.form == PATH_FORM and not stat.S_ISREG(found.kind):
        why = f"{target} is not a regular file", "a directory can be granted as a tree"
    elif cls.name == BROAD:
        why = "the wall opens the addresses of a name, not a port of all", f"grant tcp:HOST:{PORT} for each host"
    elif cls.name == PROXY_TARGET and peer(target).port != PORT:
        why = f"only port {PORT} is ever opened", f"grant tcp:HOST:{PORT}"
    return [] if why is None else [Refusal("unsupported", f"{cls.name}: {why[0]}", why[1])]
