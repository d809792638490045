"""What an installation changes, as a value, and the record that lets it be undone to the byte.

`Change` is pure text; `perform` writes each file aside and renames it, so a reader sees the old or the new one. A file
of ours that somebody changed since is told and not touched, unless told to.
"""

import base64
import binascii
import hashlib
import json
import os
import shutil
import stat
from typing import Any

from launcher.registration.scope import Scope
from launcher.value import Value
from oci.refusal import Refusal, Refused

SCHEMA = 1
WRITE, KEEP, REMOVE, RESTORE = "write", "unchanged", "remove", "restore"


class Change(Value):
    """One file's change: what to do, where, and the bytes that are to be there (None: no file)."""

    action: str
    path: str
    data: bytes | None = None

    def told(self) -> dict[str, str]:
        """Return the change for people and machines."""
        return {"action": self.action, "path": self.path}


class Record(Value):
    """What was installed: the digest of each file of ours, what was there before it, and the folders we made.

    `named` are the hook directories that the drop-in names, none where there is no drop-in of ours.
    """

    files: dict[str, str]
    before: dict[str, bytes | None]
    made: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


def mark(data: bytes) -> str:
    """Return the digest by which a file of ours is known again."""
    return hashlib.sha256(data).hexdigest()


def load(scope: Scope) -> Record | None:
    """Return the record of a scope, None when nothing is installed; raises Refused when it cannot be read."""
    path = scope.real(scope.state)
    try:
        with open(path, encoding="utf-8") as file:
            return _from_json(json.load(file))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        text = f"{path} cannot be read: {error}"
        raise Refused([Refusal("registration-record", text, "remove it, and install with --force")]) from None


def _from_json(value: dict[str, Any]) -> Record:
    if value["schema"] != SCHEMA:
        raise ValueError(f"its schema is {value['schema']}")
    before = {name: None if text is None else base64.b64decode(text) for name, text in value["before"].items()}
    lists = {name: tuple(value[name]) for name in ("made", "programs", "named")}
    return Record(files=dict(value["files"]), before=before, **lists)


def save(scope: Scope, record: Record) -> None:
    """Write the record."""
    before = {name: None if data is None else base64.b64encode(data).decode() for name, data in record.before.items()}
    value = {
        "schema": SCHEMA,
        "files": record.files,
        "before": before,
        "made": list(record.made),
        "programs": list(record.programs),
        "named": list(record.named),
    }
    put(scope.real(scope.state), (json.dumps(value, indent=1) + "\n").encode())


def current(path: str) -> bytes | None:
    """Return what is at a path, None when there is nothing; raises Refused for what is not a plain file."""
    try:
        if os.path.islink(path):
            raise Refused([Refusal("registration-linked", f"{path} is a symbolic link", "remove it")])
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused([Refusal("registration-unreadable", f"{path}: {os.strerror(error.errno or 0)}")]) from None


def make_folder(path: str) -> list[str]:
    """Make a folder and those above it, closed to others' writing; return the ones that were not there."""
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        os.mkdir(folder, 0o755)
        os.chmod(folder, 0o755)  # noqa: S103 - whatever the umask; podman and everybody's hooks read it
    return list(reversed(missing))


def put(path: str, data: bytes) -> None:
    """Write a file whole in one step, mode 0644 or the one it has; raises OSError, and then nothing changed."""
    mode = stat.S_IMODE(os.stat(path).st_mode) if os.path.exists(path) else 0o644
    aside = f"{path}.{os.getpid()}.new"
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(aside, path)
    except OSError:
        os.unlink(aside)
        raise


def put_tree(place: str, files: dict[str, bytes]) -> None:
    """Put a folder of files in place in one step, instead of one that is there; raises OSError."""
    aside = f"{place}.{os.getpid()}.new"
    shutil.rmtree(aside, ignore_errors=True)
    for name, data in files.items():
        make_folder(os.path.dirname(f"{aside}/{name}"))
        put(f"{aside}/{name}", data)
    shutil.rmtree(place, ignore_errors=True)
    os.rename(aside, place)
