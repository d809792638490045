"""What is mounted below a root: a bind of a root brings all of it, and gives the root's own options to the top alone.

The rule: what is mounted in a root is as closed as the root. So each gets a mount of its own, with the options of the
place that it lies in, and podman's storage, where mounts of other containers come and go, is hidden by an empty one.
Stage 2 sees that nothing else is mounted there (`launcher.stage2.selftest`).
"""

import os

from launcher.fs.paths import FLAG, READ, WRITE, Root, below, unprintable
from launcher.fs.protect import Protection
from oci import mountinfo
from oci.refusal import Refusal

# Each is one more mount of podman's and the runtime's.
_MOST = 100
_HINT = "name a narrower path"


def decide(
    roots: list[Root], kept: Protection, hidden: tuple[str, ...]
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], list[Refusal]]:
    """Return what is mounted below the roots and what is to be hidden in them, each as (access, path), and refusals.

    `hidden` are directories that no root shows.
    """
    places = {root.path: root.access for root in roots if root.directory}
    if not places:
        return (), (), []
    places |= {**dict.fromkeys(kept.held, WRITE), **dict.fromkeys(kept.closed, READ)}
    away = sorted(map(os.path.realpath, hidden))
    masks = {path: mountinfo.innermost(path, places, "") for path in away if _hide(path, places)}
    with open("/proc/self/mountinfo", "rb") as file:
        points = {point for _, _, point in mountinfo.mounts(file.read())}
    found = {
        point: mountinfo.innermost(point, places, "")
        for point in sorted(points - places.keys())
        if not any(point == mask or below(point, mask) for mask in masks)
    }
    mounted = [(access, point) for point, access in found.items() if access]
    return tuple(mounted), tuple((access, path) for path, access in masks.items()), _refusals(mounted, roots)


def _hide(path: str, places: dict[str, str]) -> bool:
    """Return whether a path lies in what may be read, and holds nothing that was asked for itself."""
    asked = any(place == path or below(place, path) for place in places)
    return not asked and mountinfo.innermost(path, places, "") not in {"", WRITE} and os.path.isdir(path)


def _refusals(mounted: list[tuple[str, str]], roots: list[Root]) -> list[Refusal]:
    if len(mounted) > _MOST:
        held = [
            f"{FLAG[root.access]} {root.path}" for root in roots if any(below(path, root.path) for _, path in mounted)
        ]
        text = f"{', '.join(held)}: more than {_MOST} file systems are mounted there"
        return [Refusal("path-mounts", text, _HINT)]
    return [refusal for _, path in mounted for refusal in _unusable(path)]


def _unusable(path: str) -> list[Refusal]:
    """Refuse what cannot be mounted by its path: a card would have it with none of the root's restrictions."""
    if unprintable(path):
        return [
            Refusal("path-mounts", f"{path!r} is a mount point with a control character in it, or not UTF-8", _HINT)
        ]
    try:
        os.stat(path)
    except OSError as error:
        return [Refusal("path-mounts", f"{path} is mounted in what the card may reach: {error.strerror}", _HINT)]
    return []
