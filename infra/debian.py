"""Root filesystems from Debian packages, with this machine's own package mirror, apt settings and programs.

What the bench and the card image are both made by. No host is named here: where the machine says nothing, the
programs' own defaults stand. Imports the standard library only.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SUITE = "trixie"
# program -> the Debian and Ubuntu package that has it
PROGRAMS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux", "newuidmap": "uidmap"}
# what mmdebstrap leaves of this machine in what it makes: its names, its mirror and proxy (which may hold a password)
MACHINE_OWN = "etc/resolv.conf etc/hostname etc/apt/sources.list etc/apt/apt.conf.d/99mmdebstrap"
FORGET = f'cd "$1" && rm -f {MACHINE_OWN} && touch etc/apt/sources.list'
UNWANTED = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
APT_OPTIONS = ("Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::Retries", "Acquire::Force")
APT_TRANSPORTS = ("Acquire::http::", "Acquire::https::")


class BuildError(Exception):
    """Something cannot be built; the text says what failed or is missing."""


def say(who: str, text: str) -> None:
    """Write one line of progress on stderr: stdout is for data."""
    sys.stderr.write(f"{who}: {text}\n")
    sys.stderr.flush()


def checked(argv: list[str], *, environment: dict[str, str] | None = None) -> None:
    """Run a program with its output on stderr; raises BuildError when it fails."""
    with open("/dev/null", "rb") as nothing:
        done = subprocess.run(argv, check=False, stdin=nothing, stdout=sys.stderr, env=environment)
    if done.returncode != 0:
        raise BuildError(f"{argv[0]} failed with status {done.returncode}: {' '.join(argv)}")


def _installed(package: str) -> bool:
    """Say whether dpkg knows the package as installed."""
    argv = ["dpkg-query", "-W", "-f", "${Status}", package]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    return done.stdout.endswith("ok installed")


def install_missing(who: str) -> None:
    """Install, by apt-get, what building needs and this machine has not; raises BuildError when that needs root."""
    packages = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if not _installed("debian-archive-keyring"):
        packages.append("debian-archive-keyring")
    if subprocess.run([sys.executable, "-m", "pip", "--version"], check=False, capture_output=True).returncode != 0:
        packages.append("python3-pip")
    if not packages:
        return
    if os.geteuid() != 0:
        raise BuildError(f"missing on this machine; as root: apt-get install {' '.join(packages)}")
    say(who, f"installing {' '.join(packages)}")
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    checked(["apt-get", "-q", "update"], environment=environment)
    argv = ["apt-get", "-q", "-y", "--no-install-recommends", "install", *packages]
    checked(argv, environment=environment)


def bootstrap(target: Path, packages: tuple[str, ...], suite: str = SUITE) -> None:
    """Make a root filesystem with apt and the packages: a folder (as root), or a tar if the target's name ends so."""
    argv = ["mmdebstrap", "--variant=apt", f"--include={','.join(packages)}"]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in UNWANTED]
    argv += [f"--aptopt={option}" for option in apt_options()]
    argv += [f"--customize-hook={FORGET}"]
    if target.suffix == ".tar":
        argv.append("--skip=output/dev")  # no device nodes: a container gets its own
    checked([*argv, suite, str(target), *mirror_lines(suite)])


def mirror_lines(suite: str) -> list[str]:
    """Return sources.list lines for a Debian suite at the machine's own mirrors; [] leaves mmdebstrap's default.

    A machine that is not Debian, or has no Debian mirror configured for its own release, says nothing useful here.
    """
    release = _release()
    if release.get("ID") != "debian":
        return []
    own = release.get("VERSION_CODENAME", "")
    argv = ["apt-get", "indextargets", "--format", "$(SITE)|$(RELEASE)|$(COMPONENT)", "Identifier: Packages"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    lines: list[str] = []
    for line in done.stdout.splitlines():
        site, configured, component = line.split("|")
        for ending in ("", "-updates", "-security"):
            new = f"deb {site} {suite}{ending} main"
            if configured == own + ending and component == "main" and new not in lines:
                lines.append(new)
    return lines if any(line.endswith(f" {suite} main") for line in lines) else []


def _release() -> dict[str, str]:
    """Return os-release(5) as a dictionary."""
    with open("/etc/os-release", encoding="utf-8") as file:
        pairs = (line.strip().partition("=") for line in file if "=" in line)
        return {key: value.strip("\"'") for key, _, value in pairs}


def apt_options() -> list[str]:
    """Return the machine's apt settings that decide whether a fetch works (proxies, clocks), as apt.conf lines."""
    argv = ["apt-config", "dump"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    return [
        line.rstrip(";")
        for line in done.stdout.splitlines()
        if line.startswith(APT_OPTIONS + APT_TRANSPORTS) and not line.endswith('"";')
    ]
