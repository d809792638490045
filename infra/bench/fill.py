"""Building images of the bench into one store; runs inside the bench, as the user whose store it is.

Ends with a container of each image that was never started: podman keeps a copy of an image's layers for each user
mapping, and the one of --userns=keep-id must be there, since the store is read-only afterwards.
Imports the standard library and siblings.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from infra.debian import BuildError, checked, say
from infra.image import image

BUSYBOX_TAG = "localhost/card-run/busybox:latest"
PODMAN = "/usr/bin/podman"


def main() -> int:
    """Build an image from the tar, with the authority and by the tag that the arguments name; busybox's beside ours."""
    tar, authority, tag = sys.argv[1:]
    try:
        image.build(Path(tar), [Path(authority)], tag)
        tags = (tag, _busybox()) if tag == image.TAG else (tag,)
        for name in tags if os.geteuid() else ():
            checked([PODMAN, "create", "--quiet", "--userns=keep-id", "--network=none", name, "true"])
        checked([PODMAN, "rm", "--all"])
    except BuildError as error:
        say("bench", str(error))
        return 1
    return 0


def _busybox() -> str:
    """Build the busybox image from the bench's own busybox and return its tag."""
    with tempfile.TemporaryDirectory() as context:
        shutil.copy("/usr/bin/busybox", context)
        recipe = str(Path(__file__).parent / "Containerfile.busybox")
        checked([PODMAN, "build", "--quiet", "--network=none", "--file", recipe, "--tag", BUSYBOX_TAG, context])
    return BUSYBOX_TAG
