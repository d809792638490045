"""What a world needs that takes time to make: the test CA, certificates, git repositories. Made once and cached.

Made by the root filesystem's own openssl and git. The CA's key never enters the bench. Imports the standard library
and siblings.
"""

import shlex
from pathlib import Path

from infra.bench import layout
from infra.bench.rootfs import Root, inside
from infra.bench.world import World
from infra.debian import say

BUNDLE = "etc/ssl/certs/ca-certificates.crt"
DAYS = 3650
NEW_KEY = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days {DAYS}"
MAKE_CA = f"""set -e
cd /mnt
{NEW_KEY} -keyout ca.key -out ca.crt -subj '/CN=card-run test CA' \
    -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
cat /{BUNDLE} ca.crt > bundle.crt
"""
MAKE_REPOSITORY = """set -e
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' HOME=/nowhere
cd /mnt
git init -q --template= work
cd work
printf '# hello\\n\\nSays hello.\\n' > README.md
git add . && git commit -q -m 'Begin'
printf 'def hello(name: str) -> str:\\n    return f"hello, {name}"\\n' > hello.py
git add . && git commit -q -m 'Say hello' && git tag v1
cd ..
"""
KEEP = 8


def ca(root: Root) -> Path:
    """Return the folder with ca.crt, ca.key and bundle.crt (the root filesystem's own trust and the test CA)."""

    def make(folder: Path) -> None:
        inside(root, ["sh", "-c", MAKE_CA], bind=(folder, "/mnt"))
        (folder / "ca.key").chmod(0o600)

    return layout.made(f"ca_{root.suite.name}", layout.digest([MAKE_CA.encode(), root.name.encode()]), make)


def ensure(root: Root, world: World) -> Path:
    """Return the folder with a certificate NAME.crt and NAME.key for each TLS host, and git/OWNER/NAME.git."""
    authority = ca(root)
    script = "\n".join(
        ["set -e", *_certificates(world), MAKE_REPOSITORY, *_repositories(world), "rm -r work ca.crt ca.key"]
    )

    def make(folder: Path) -> None:
        say("bench", "making the world's certificates and repositories")
        for name in ("ca.crt", "ca.key"):
            (folder / name).write_bytes((authority / name).read_bytes())
        inside(root, ["sh", "-c", script], bind=(folder, "/mnt"))

    return layout.made("world", layout.digest([script.encode(), authority.name.encode()]), make, keep=KEEP)


def _certificates(world: World) -> list[str]:
    """Return shell lines that make the certificates."""
    lines = ["cd /mnt"]
    for host in world.hosts:
        if any(service.kind == "https" for service in host.services):
            name = shlex.quote(host.names[0])
            alternatives = shlex.quote("subjectAltName=" + ",".join(f"DNS:{other}" for other in host.names))
            lines.append(
                f"{NEW_KEY} -CA ca.crt -CAkey ca.key -keyout {name}.key -out {name}.crt -subj /CN=bench"
                f" -addext {alternatives} -addext extendedKeyUsage=serverAuth -addext basicConstraints=CA:FALSE"
                " 2>/dev/null"
            )
    return lines


def _repositories(world: World) -> list[str]:
    """Return shell lines that make the repositories, each a clone of the one in work/."""
    lines: list[str] = []
    for name in sorted({name for host in world.hosts for name in host.repositories}):
        place = shlex.quote(f"git/{name}.git")
        lines.append(f"git clone -q --bare --template= work {place}")
        lines.append(f"git -C {place} config http.receivepack true")
    return lines
