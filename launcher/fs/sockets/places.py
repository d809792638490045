"""Where a file is, said so that every mount and every mount namespace agrees: its superblock, and the path in that.

A directory has one place, however often it is mounted (proc_pid_mountinfo(5)). A file has one while it has one name.
"""

import os

from launcher.fs.paths import below
from launcher.value import Value
from oci import mountinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.fs.paths import Root

Place = tuple[str, str]
Mount = tuple[str, str, str]  # device, the directory of it that is mounted, and where


class Top(Value):
    """A place that a root opens: the root itself, or what is mounted below it, at `point` of ours."""

    root: "Root"
    place: Place
    point: str

    def holds(self, place: Place) -> bool:
        """Return whether a place is this one, or below it."""
        return place[0] == self.place[0] and _under(place[1], self.place[1])

    def meets(self, mount: Mount) -> bool:
        """Return whether a mount shows something of it."""
        device, shown, _ = mount
        return device == self.place[0] and (_under(shown, self.place[1]) or _under(self.place[1], shown))

    def path(self, place: Place) -> str:
        """Return a place that it holds as a path of ours."""
        return self.point + (place[1] if self.place[1] == "/" else place[1][len(self.place[1]) :])


def mounts(process: str) -> dict[str, Mount]:
    """Return the mounts that a process sees, by their ids; raises OSError when it is gone or not ours to look at."""
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return mountinfo.placed(file.read())


def tops(roots: "list[Root]") -> tuple[list[Top], bool]:
    """Return what the roots open, and whether every root could be placed."""
    table = mounts("self")
    found: list[Top] = []
    placed = 0
    for root in roots:
        place = _of_root(root, table)
        if place is not None:
            placed += 1
            found.append(Top(root=root, place=place, point=root.path))
        found += [
            Top(root=root, place=(device, shown), point=point)
            for device, shown, point in table.values()
            if below(point, root.path)
        ]
    return found, placed == len(roots)


def _of_root(root: "Root", table: dict[str, Mount]) -> Place | None:
    try:
        fd = os.open(root.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
    place = at(fd, table)
    os.close(fd)
    return place


def at(fd: int, table: dict[str, Mount]) -> Place | None:
    """Return the place of an open file by the mounts of its namespace; None when they do not tell."""
    with open(f"/proc/self/fdinfo/{fd}", "rb") as file:
        mount = table.get(next(line[7:].strip().decode() for line in file if line.startswith(b"mnt_id:")))
    path = os.readlink(f"/proc/self/fd/{fd}")
    if mount is None or not _under(path, mount[2]):
        return None
    device, shown, point = mount
    return device, (shown.rstrip("/") + path[len(point.rstrip("/")) :]).rstrip("/") or "/"


def _under(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")
