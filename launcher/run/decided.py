"""What decided about a run, for its receipt: the files that had a say, with their digests, and the profile."""

from hooks.plan import sha256
from launcher.access.profile import fingerprint
from launcher.launch import Launch
from launcher.reach import implied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
else:
    Any = object

DEFAULTS, CARD, CEILING = "defaults", "card", "ceiling"


def files(launch: Launch) -> dict[str, dict[str, str] | None]:
    """Return the card file, the user's defaults and the file of the bench's ceiling; None where there is none."""
    merged = launch.asked.merged
    ceiling = launch.bounds.ceiling if launch.bounds else None
    found = {CARD: merged.card if merged else None, DEFAULTS: merged.defaults if merged else None, CEILING: ceiling}
    return {
        name: {"path": one.path, "sha256": sha256(one.data)} if one is not None else None for name, one in found.items()
    }


def access(launch: Launch) -> dict[str, Any]:
    """Return the profile that the run was held to, and in words what the ceiling took away and what is gated."""
    bounds = launch.bounds
    profile = bounds.profile if bounds else implied(launch.asked)
    content = profile.as_dict()
    return {
        "stated": launch.asked.profile is not None,
        "profile": {**content, "roots": [root.as_dict() for root in profile.roots]},
        "fingerprint": fingerprint(profile),
        "narrowed": list(bounds.narrowed) if bounds else [],
        "gated": list(bounds.gated) if bounds else [],
    }


def worker(launch: Launch) -> dict[str, str | None]:
    """Return what the card says of its worker."""
    return {"description": launch.asked.description, "model_host": launch.asked.model_host}
