"""Where a registration lies: the user's own, or the bench's for everybody.

Pure but for the environment. podman looks by itself into one directory only, /usr/share/containers/oci/hooks.d, and
rootless podman has no directory of the user's (tried with 4.3 and 5.4): whatever lies elsewhere needs a containers.conf
that names it.
"""

import os

from launcher.run import site
from launcher.value import Value
from oci.refusal import Refusal, Refused

USER, SYSTEM = "user", "system"
# After every other file of its folder: a later one that sets `hooks_dir` would take our hooks away without a word.
DROP_IN = "zz-card-run.conf"
SYSTEM_PREFIX = "/usr/local"


class Scope(Value):
    """One registration's places, as they are once installed; `root` (DESTDIR) goes before each to write there.

    `drop_in` is written only where podman would not look into `hooks_d` without it. `python` is the interpreter that
    runs the hooks, this one's own when it is empty.
    """

    name: str
    programs: str
    hooks_d: str
    drop_in: str
    state: str
    root: str = ""
    python: str = ""

    @property
    def everyone(self) -> bool:
        """Return whether what podman reads for every user counts, and not what it reads for the caller."""
        return self.name == SYSTEM and os.geteuid() == 0

    def real(self, path: str) -> str:
        """Return where a place is written now."""
        return f"{self.root}{path}"


def user() -> Scope:
    """Return the caller's own registration (XDG base directory specification); raises Refused without a HOME."""
    home = os.environ.get("HOME", "")
    data = _base("XDG_DATA_HOME", home, ".local/share")
    config = _base("XDG_CONFIG_HOME", home, ".config")
    return Scope(
        name=USER,
        programs=f"{data}/card-run/hooks",
        hooks_d=f"{data}/card-run/hooks.d",
        drop_in=f"{config}/containers/containers.conf.d/{DROP_IN}",
        state=f"{data}/card-run/registration.json",
    )


def _base(variable: str, home: str, below: str) -> str:
    value = os.environ.get(variable, "")
    if value.startswith("/"):
        return os.path.normpath(value)
    if not home.startswith("/"):
        raise Refused([Refusal("no-home", f"neither {variable} nor HOME is an absolute path", "set one of them")])
    return f"{os.path.normpath(home)}/{below}"


def system(*, prefix: str = SYSTEM_PREFIX, hooks_d: str = site.DEFAULT, root: str = "", python: str = "") -> Scope:
    """Return the registration for every user of the bench."""
    wrong = [path for path in (prefix, hooks_d) if not path.startswith("/") or os.path.normpath(path) != path]
    if wrong or (root and not root.startswith("/")):
        text = f"{(*wrong, root)[0]!r} is not an absolute, normal path"
        raise Refused([Refusal("bad-path", text, "write it in full, without a / at the end")])
    return Scope(
        name=SYSTEM,
        programs=f"{prefix}/lib/card-run/registered",
        hooks_d=hooks_d,
        drop_in=f"/etc/containers/containers.conf.d/{DROP_IN}",
        state=f"{prefix}/lib/card-run/registration.json",
        root=root.rstrip("/"),
        python=python,
    )
