"""The card image as a user builds it: from the tar alone, with nothing of this machine or of the bench in it."""

import os
import subprocess

import pytest

from infra.image import image
from tests.kernel.bench_runs import bench

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the bench is entered by root")
TAG = "localhost/bench-test/card:latest"
PLACE = "/var/tmp/card.tar"
SCRIPT = f"""set -e
/src/infra/image/build --rootfs {PLACE} --tag {TAG} >&2
run="podman run --rm --pull=never --entrypoint= {TAG}"
$run sh -c 'git --version && python3 --version && curl --version' | cut -d' ' -f1
$run curl -sS https://github.com/ || echo "untrusted $?"
$run sh -c 'ls /usr/local/share/ca-certificates; cat /etc/apt/sources.list'
echo end
"""


def test_built_image_is_complete_and_trusts_no_test_authority() -> None:
    """The image has its four packages, trusts Debian's authorities alone, and names no mirror."""
    binding = f"{image.rootfs_tar()}:{PLACE}"
    done = bench("sh", "-c", SCRIPT, options=("--fresh", "--bind", binding))
    assert done.returncode == 0, done.stderr.decode()
    words = done.stdout.decode().split("\n")
    assert [word for word in words if word in {"git", "Python", "curl"}] == ["git", "Python", "curl"]
    assert words[-3:] == ["untrusted 60", "end", ""]


def test_tar_has_nothing_of_this_machine() -> None:
    """No resolver, host name, mirror, proxy or device node of the machine that made the tar is in it."""
    names = ["./etc/resolv.conf", "./etc/hostname", "./etc/apt/apt.conf.d/99mmdebstrap"]
    listing = subprocess.run(
        ["tar", "-tvf", str(image.rootfs_tar())], check=True, capture_output=True, text=True
    ).stdout
    lines = listing.splitlines()
    assert any(line.endswith(" ./usr/bin/git") for line in lines)
    assert [line for line in lines if line.startswith(("b", "c")) or line.endswith(tuple(names))] == []
    sources = ["tar", "-xOf", str(image.rootfs_tar()), "./etc/apt/sources.list"]
    assert subprocess.run(sources, check=True, capture_output=True).stdout == b""
