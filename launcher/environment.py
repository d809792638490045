"""The worker's variables beyond the image's own: the card's, then what was asked for; nothing crosses unasked.

Values go to stage 2 over the channel, so that none is ever in an argv, in a mounted file or in podman's state.
"""

import os

from launcher.fs.paths import promptly
from oci.refusal import Refusal

# What `--env-host` never passes: it would act on programs before they act, points at the bench's own agents and
# sessions, or names temporary directories that are not the card's.
_DROPPED = frozenset(
    (
        *("TMPDIR", "TMP", "TEMP", "TEMPDIR"),
        *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GNOME_KEYRING_CONTROL", "DBUS_SESSION_BUS_ADDRESS"),
        *("DOCKER_HOST", "CONTAINER_HOST", "CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "KUBECONFIG"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "PULSE_SERVER", "TMUX", "STY"),
        *("BASH_ENV", "ENV", "PERL5LIB", "PERL5OPT", "PERLLIB", "RUBYLIB", "RUBYOPT", "NODE_OPTIONS", "NODE_PATH"),
        *("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH", "LUA_PATH", "LUA_CPATH"),
        *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS", "GIT_EXEC_PATH", "GIT_DIR"),
        *("GCONV_PATH", "GLIBC_TUNABLES", "LOCPATH", "MALLOC_TRACE", "HOSTALIASES", "RES_OPTIONS"),
        *("OLDPWD", "PWD", "_"),  # the shell's own
    )
)
_DROPPED_PREFIXES = ("LD_", "DYLD_", "PYTHON", "GIT_CONFIG", "BASH_FUNC_", "SYSTEMD_", "LISTEN_", "NOTIFY_")
_PROXIES = frozenset(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy"))
FILE_LIMIT = 1 << 20


def decide(
    *, home: str, asked: tuple[str, ...], files: tuple[str, ...], host: bool
) -> tuple[tuple[tuple[str, str], ...], list[str], list[Refusal]]:
    """Return the variables in order of precedence resolved, notes on what was dropped, and refusals.

    Later wins: the caller's own (`host`), the card's HOME and TMPDIR, the files' lines, the `--env` items.
    """
    values: dict[str, str] = {}
    notes: list[str] = []
    if host:
        values, dropped = _from_host()
        notes += [f"--env-host leaves out {' '.join(dropped)}"] if dropped else []
    values |= {"HOME": home, "TMPDIR": "/tmp"}  # noqa: S108 - the card's own tmpfs
    if os.environ.get("TERM"):
        values["TERM"] = os.environ["TERM"]
    refusals: list[Refusal] = []
    for path in files:
        lines, refused = _from_file(path)
        values |= lines
        refusals += refused
    for item in asked:
        refusals += _take(item, values, notes)
    return tuple(values.items()), notes, refusals


def _take(item: str, values: dict[str, str], notes: list[str]) -> list[Refusal]:
    name, equals, value = item.partition("=")
    if not good_name(name):
        return [Refusal("bad-env", f"--env {name!r} is not a variable's name")]
    if equals:
        values[name] = value
    elif name in os.environ:
        values[name] = os.environ[name]
    else:
        notes.append(f"--env {name}: not set here, so not passed")
    return []


def good_name(name: str) -> bool:
    """Return whether this can be a variable's name (environ(7)): not empty, printable, without spaces."""
    return bool(name) and all(0x20 < ord(character) < 0x7F for character in name)


def _from_host() -> tuple[dict[str, str], list[str]]:
    dropped = sorted(name for name, value in os.environ.items() if _is_dropped(name, value))
    return {name: value for name, value in os.environ.items() if name not in dropped}, dropped


def _is_dropped(name: str, value: str) -> bool:
    if name.lower() in _PROXIES:
        return "@" in value  # credentials
    return name in _DROPPED or name.startswith(_DROPPED_PREFIXES) or not good_name(name)


def _from_file(path: str) -> tuple[dict[str, str], list[Refusal]]:
    """Read `NAME=VALUE` lines as podman does: `#` starts a comment line, a name alone passes the caller's."""
    try:
        with open(path, "rb", opener=promptly) as file:
            text = file.read(FILE_LIMIT).decode()
    except OSError as error:
        return {}, [Refusal("env-file", f"--env-file {path}: {error.strerror or error}")]
    except UnicodeDecodeError:
        return {}, [Refusal("env-file", f"--env-file {path} is not UTF-8")]
    values: dict[str, str] = {}
    refusals: list[Refusal] = []
    for number, line in enumerate(text.splitlines(), start=1):
        name, equals, value = line.partition("=")
        if not name.strip() or line.startswith("#"):
            continue
        if not good_name(name):
            refusals.append(Refusal("env-file", f"{path}:{number}: {name[:40]!r} is not a variable's name"))
        elif equals:
            values[name] = value
        elif name in os.environ:
            values[name] = os.environ[name]
    return values, refusals
