"""Whether a root holds a socket that answers: reaching one by its path is checked by no wall before Landlock ABI 9.

The rule: a socket is where it is, whatever it was called when it was bound and in whichever namespaces. One that is
found by its name is judged by its place; only one that is not (renamed, linked, bound elsewhere), and may lie in a
root, has that root searched. Sockets of processes that we may not look at are seen in our own network namespace alone.
"""

import _socket
import os
import stat

from launcher.fs.paths import FLAG, Root, below
from launcher.fs.sockets import listeners, places
from launcher.fs.sockets.listeners import Listener
from launcher.fs.sockets.places import Mount, Place
from oci.refusal import Refusal

# Names that a root may hold and still be searched: about two seconds.
SEARCHED = 1_000_000
_US = "self"
_AWAY = ("", "")  # the place of what lies on a device that no root has
_REASON, _HINT = "path-has-socket", "stop its owner, or name a narrower path"


def judge(roots: list[Root], hidden: tuple[str, ...] = ()) -> list[Refusal]:
    """Return a refusal for each root and each socket that answers in it, but not in what is `hidden` from the card."""
    if not roots:
        return []
    sight = _Sight(roots)
    sight.look()
    held_there = [(top.root, top.path(place)) for place in sight.places for top in sight.tops if top.holds(place)]
    found = [one for one in held_there if not any(below(one[1], mask) for mask in hidden)]
    held = {root.path for root, _ in found}
    refusals = [_refusal(root, path) for root, path in dict.fromkeys(found)]
    for root in roots if sight.lost else ():
        refusals += _searched(root, hidden, sight.lost[0]) if root.directory and root.path not in held else []
    return refusals


def _refusal(root: Root, path: str) -> Refusal:
    return Refusal(_REASON, f"{FLAG[root.access]} {root.path} holds the socket {path}, which answers", _HINT)


class _Sight:
    """What is listened on: the `places` that are known, and the names of those that may be anywhere in a root."""

    def __init__(self, roots: list[Root]) -> None:
        self.tops, self._all_placed = places.tops(roots)
        self._devices = {top.place[0] for top in self.tops}
        # Where a file system has a device of its own for each of its subvolumes or layers, stat(2) tells nothing.
        self._telling = self._all_placed and not any(device.startswith("0:") for device in self._devices)
        self._hidden = False
        self._tables: dict[str, dict[str, Mount]] = {}
        self.places: list[Place] = []
        self.lost: list[str] = []

    def look(self) -> None:
        """Look at our own network namespace, and at every other that we may."""
        others = listeners.namespaces()
        ours = others.pop(os.readlink(f"/proc/{_US}/ns/net"), [])
        try:
            heard = listeners.own()
        except OSError:  # a kernel without unix_diag
            self._named([_US, *ours])
        else:
            self._known(heard, ours)
        for processes in others.values():
            self._named(processes)

    def _known(self, heard: list[Listener], processes: list[str]) -> None:
        """Place those whose inodes are known."""
        others: list[str] | None = None
        for one in heard:
            if self._all_placed and one.device not in self._devices:
                continue
            place, hidden = self._place(_US, one.name, one), self._hidden
            if place is None:
                others = _views(processes, _US) if others is None else others
                place = next(filter(None, (self._place(view, one.name, one) for view in others)), None)
            if place is not None:
                self.places.append(place)
            elif not hidden:
                self.lost.append(one.name)

    def _named(self, processes: list[str]) -> None:
        """Place those of which only the names are known, as the mount namespaces of these processes have them."""
        names = listeners.names(processes[0])
        views = _views(processes) if names else []
        for name, count in names.items():
            found = [place for view in views if (place := self._place(view, name)) is not None]
            self.places += found
            if len(found) < count and any(self._meets(view) for view in views):
                self.lost.append(name)

    def _meets(self, view: str) -> bool:
        """Return whether a process sees something of the roots: what it bound there stayed on the same mount."""
        table = self._table(view)
        return not self._all_placed or any(top.meets(mount) for top in self.tops for mount in table.values())

    def _table(self, view: str) -> dict[str, Mount]:
        """Return the mounts that a process sees, none when it is gone."""
        if view not in self._tables:
            try:
                self._tables[view] = places.mounts(view)
            except OSError:
                self._tables[view] = {}
        return self._tables[view]

    def _place(self, view: str, name: str, known: Listener | None = None) -> Place | None:
        """Return where a name leads in the mount namespace of a process, None where that is not the one socket.

        `_hidden` says whether that is because we may not enter a directory of the name: nor may a card.
        """
        self._hidden = False
        if not name.startswith("/"):
            return None  # relative to a directory that is not told
        try:
            fd = os.open(f"/proc/{view}/root{name}", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            self._hidden = isinstance(error, PermissionError)
            return None
        try:
            return self._place_of(fd, view, known)
        finally:
            os.close(fd)

    def _place_of(self, fd: int, view: str, known: Listener | None) -> Place | None:
        found = os.fstat(fd)
        if not stat.S_ISSOCK(found.st_mode) or (known and found.st_ino & 0xFFFFFFFF != known.inode):
            return None
        if (
            known is None
            and self._telling
            and f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}" not in self._devices
        ):
            return _AWAY
        if found.st_nlink != 1:
            return None  # another name of it may lie in a root
        place = places.at(fd, self._table(view))
        return None if place and known and place[0] != known.device else place


def _views(processes: list[str], but: str = "") -> list[str]:
    """Return one process of each mount namespace that these are in, that of `but` left out."""
    found: dict[str, str] = {}
    for process in [but, *processes] if but else processes:
        try:
            found.setdefault(os.readlink(f"/proc/{process}/ns/mnt"), process)
        except OSError:
            continue  # gone
    return [process for process in found.values() if process != but]


def _searched(root: Root, hidden: tuple[str, ...], name: str) -> list[Refusal]:
    """Return a refusal for each socket in a root that somebody has bound, or for a root that is too large to search."""
    refusals: list[Refusal] = []
    waiting, seen = [root.path], 0
    while waiting:
        inner, names, files = _directory(waiting.pop())
        waiting += [path for path in inner if path not in hidden]
        refusals += [_refusal(root, path) for path in files if _bound(path)]
        seen += names
        if seen > SEARCHED:
            text = f"{FLAG[root.access]} {root.path} holds more than {SEARCHED} names, {name!r} perhaps, which answers"
            return [*refusals, Refusal(_REASON, text, _HINT)]
    return refusals


def _directory(path: str) -> tuple[list[str], int, list[str]]:
    """Return the directories in a directory, how many names it holds, and which are no file, directory or link."""
    inner: list[str] = []
    odd: list[str] = []
    names = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names += 1
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    odd.append(entry.path)
    except OSError:
        pass  # a card is not let in either
    return inner, names, odd


def _bound(path: str) -> bool:
    """Return whether a socket is bound to a file, without a word to it: connect(2) as the wrong type says it first.

    A datagram socket is only made ours to send to.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # gone, or not for us
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        probe.connect(f"/proc/self/fd/{fd}")
    except (ConnectionRefusedError, PermissionError):
        return False  # nobody has, or not for us
    except OSError:
        return True  # EPROTOTYPE
    finally:
        probe.close()
        os.close(fd)
    return True
