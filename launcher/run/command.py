"""The podman command of a run: every option set explicitly, so that no containers.conf decides one (DESIGN 7).

Pure text. What podman made of it is read back by the hook from the bundle's config.json before anything starts.
"""

import os

from launcher.egress.nameservers import RESOLVER_FLAG
from launcher.fs import policy as filesystem
from launcher.fs.paths import NOEXEC, READ, WRITE
from launcher.launch import Launch
from launcher.limits import Limits
from launcher.network import BRIDGE, NONE, SLIRP
from launcher.run.directory import HOOKS_DIRECTORY
from launcher.runtime import Runtime
from oci import annotations

CID = "cid"
# What the hooks say on standard error: reasons that hook.json cannot hold, and what an interpreter says that fails.
HOOK_LOG = "hook.log"
# Bytes of a detached card's log; past that conmon begins it anew (conmon(8) `--log-size-max`).
LOG_LIMIT = 64 << 20
# A card's interface on a bridge, by name: stage 2 reads the index of its other end.
INTERFACE = "eth0"
_ROOT_OPTIONS = {READ: ("ro",), NOEXEC: ("ro", "noexec"), WRITE: ()}
# ld.so(8), gconv, tunables: variables of the image that would act on stage 2's own interpreter. They come from the
# image only; `--env` reaches the worker another way (the channel) and is not touched by this.
UNSET = (
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LD_AUDIT",
    "LD_BIND_NOT",
    "LD_BIND_NOW",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_DYNAMIC_WEAK",
    "LD_LIBRARY_PATH",
    "LD_ORIGIN_PATH",
    "LD_PRELOAD",
    "LD_PROFILE",
    "LD_PROFILE_OUTPUT",
    "LD_SHOW_AUXV",
    "LD_TRACE_LOADED_OBJECTS",
    "LOCPATH",
    "MALLOC_TRACE",
)
_ALWAYS = (
    "--rm",
    "--restart=no",
    "--pull=never",
    "--init",
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    # Roots are mounted as they are and never relabelled; the card's walls do not rest on SELinux types.
    "--security-opt=label=disable",
    "--privileged=false",
    "--pid=private",
    "--ipc=private",
    "--uts=private",
    "--cgroupns=private",
    "--no-healthcheck",
    "--http-proxy=false",
    "--env-host=false",
    "--image-volume=ignore",
    "--systemd=false",
    "--sdnotify=ignore",
    "--publish-all=false",
    "--no-hosts",
    "--hostname=card",
    "--workdir=/",
    "--umask=0022",
    "--stop-signal=SIGTERM",
    # A detached card's podman is card-run's child as any other's is: what detaches is card-run.
    "--detach=false",
    "--preserve-fds=2",
)


class Mount:
    """One mount: a bind of `source`, or a private tmpfs when that is "tmpfs"; options as config.json has them."""

    __slots__ = ("destination", "options", "size", "source")

    def __init__(self, destination: str, source: str, options: tuple[str, ...], *, size: int | None = None) -> None:
        self.destination = destination
        self.source = source
        self.options = options
        self.size = size

    def csv(self) -> str:
        """Return podman's `--mount` value: the CSV form, which alone can carry a comma or a quote (RFC 4180)."""
        if self.source == "tmpfs":
            # Mode 1777: the mount belongs to the container's root, and the worker may be another user.
            fields = ["type=tmpfs", f"destination={self.destination}", "tmpfs-mode=1777", "notmpcopyup", *self.options]
            fields += [f"tmpfs-size={self.size}"] if self.size is not None else []
        else:
            place = [f"source={self.source}", f"destination={self.destination}"]
            options = ["ro=true" if option == "ro" else option for option in self.options]
            fields = ["type=bind", *place, "bind-propagation=rprivate", *options]
        return ",".join(_csv(field) for field in fields)


def container(run: str) -> str:
    """Return the container's name."""
    return f"card-{run}"


def argv(launch: Launch, runtime: Runtime, *, podman: str, directory: str, hooks_dirs: tuple[str, ...]) -> list[str]:
    """Return the whole command that starts the card; `directory` is its run directory."""
    words = [podman, "--remote=false"]
    words += [f"--hooks-dir={path}" for path in (*hooks_dirs, f"{directory}/{HOOKS_DIRECTORY}")]
    words += ["run", *_ALWAYS, f"--name={container(launch.run)}", f"--cidfile={directory}/{CID}"]
    words += [f"--interactive={_flag(launch.interactive)}", f"--tty={_flag(launch.tty)}"]
    words += _output(launch)
    words += [f"--security-opt=seccomp={runtime.seccomp_json}", *_user(launch), *_network(launch)]
    words += [f"--unsetenv={name}" for name in UNSET]
    words += [f"--annotation={key}={value}" for key, value in _annotations(launch, directory)]
    words += [f"--mount={mount.csv()}" for mount in mounts(launch, runtime, directory)]
    # Whole seconds, for who stops the container past card-run.
    words += [f"--stop-timeout={-(-launch.limits.stop_timeout // 1):.0f}"]
    words += [*launch.limits.podman(), *launch.podman_arg]
    words += [f"--entrypoint={_json(runtime.argv)}", launch.image, launch.run]
    return words


def expectation(launch: Launch, runtime: Runtime, directory: str) -> dict[str, object]:
    """Return what the hook must find in the bundle's config.json (`hooks.bundle`)."""
    root = launch.user == "root"
    return {
        "args": ["/run/podman-init", "--", *runtime.argv, launch.run],
        "uid": 0 if root else os.getuid(),
        "gid": 0 if root else os.getgid(),
        "user_namespace": not root,
        "annotations": {annotations.HOOK_STDERR: f"{directory}/{HOOK_LOG}"},
        "mounts": [
            [mount.destination, mount.source, list(mount.options)] for mount in mounts(launch, runtime, directory)
        ],
    }


def _flag(value: bool) -> str:  # noqa: FBT001 - the one boolean it turns into text
    return "true" if value else "false"


def _json(words: tuple[str, ...]) -> str:
    """Return a JSON array of plain words; the runtime's paths are ours and need no escapes."""
    return "[" + ",".join(f'"{word}"' for word in words) + "]"


def _output(launch: Launch) -> list[str]:
    """Return where the worker's output goes: to card-run's caller, or for a detached card to its kept log.

    Attached to stdout alone, podman leaves the worker's stdin open for `card attach` (podman-run(1) `--attach`).
    """
    if not launch.detach:
        return ["--log-driver=none"]
    from launcher.life import kept  # only a detached card keeps its output

    options = (f"path={kept.log_path(launch.run)}", f"max-size={LOG_LIMIT}")
    return ["--log-driver=k8s-file", *(f"--log-opt={option}" for option in options), "--attach=stdout"]


def _user(launch: Launch) -> list[str]:
    if launch.user == "root":
        return ["--userns=host", "--user=0:0"]
    entry = f"card:*:$UID:$GID:card:{filesystem.HOME}:/bin/sh"
    return ["--userns=keep-id", f"--user={os.getuid()}:{os.getgid()}", f"--passwd-entry={entry}"]


def _network(launch: Launch) -> list[str]:
    """Return the network, with every way back to the bench closed (pasta(1), slirp4netns(1)), or none."""
    if launch.net == NONE:
        return ["--network=none"]
    if launch.net == SLIRP:
        return ["--network=slirp4netns:cidr=10.0.2.0/24,allow_host_loopback=false,enable_ipv6=false,mtu=65520"]
    if launch.net == BRIDGE:
        return [f"--network=podman:interface_name={INTERFACE}"]
    options = ["--no-map-gw", "--map-guest-addr,none", "-t,none", "-u,none", "-T,none", "-U,none"]
    if launch.dns:
        options.append(f"--dns-forward,{launch.dns}")
        # What the launcher was told to ask is what the card's questions go to, and not the bench's resolv.conf.
        if launch.nameservers.source == RESOLVER_FLAG:
            options.append(f"--dns-host,{launch.nameservers.servers[0]}")
    return ["--network=pasta:" + ",".join(options)]


def _annotations(launch: Launch, directory: str) -> list[tuple[str, str]]:
    return [
        (annotations.RUN, launch.run),
        (annotations.DIRECTORY, directory),
        (annotations.LAUNCH, launch.token),
        (annotations.HOOK_STDERR, f"{directory}/{HOOK_LOG}"),
    ]


def mounts(launch: Launch, runtime: Runtime, directory: str) -> list[Mount]:
    """Return every mount that the card asks for, in the order podman gets them."""
    ours = [
        Mount("/run/card", f"{directory}/card", ("ro", "noexec", "nosuid", "nodev")),
        Mount("/run/card-runtime", runtime.card_dir, ("ro", "nosuid", "nodev")),
        Mount("/etc/hosts", f"{directory}/hosts", ("ro", "noexec", "nosuid", "nodev")),
        Mount("/etc/resolv.conf", f"{directory}/resolv.conf", ("ro", "noexec", "nosuid", "nodev")),
    ]
    kept = {one.path: one.source for one in launch.kept}
    private = [
        Mount(path, kept[path], ("nosuid", "nodev")) if path in kept else _private(path, launch.limits)
        for path in filesystem.PRIVATE
    ]
    roots = [
        Mount(root.path, root.path, (*_ROOT_OPTIONS[root.access], "nosuid", "nodev"))
        for root in launch.filesystem.roots
    ]
    held = [Mount(path, path, ("nosuid", "nodev")) for path in launch.filesystem.held]
    closed = [Mount(path, path, ("ro", "nosuid", "nodev")) for path in launch.filesystem.closed]
    mounted = [
        Mount(path, path, (*_ROOT_OPTIONS[access], "nosuid", "nodev")) for access, path in launch.filesystem.mounted
    ]
    hidden = [
        Mount(path, "tmpfs", (*_ROOT_OPTIONS[access], "nosuid", "nodev")) for access, path in launch.filesystem.hidden
    ]
    return ours + private + roots + held + closed + mounted + hidden


def _private(path: str, limits: Limits) -> Mount:
    bound = limits.shm_size if path == "/dev/shm" else limits.tmp_size  # noqa: S108 - the card's own
    return Mount(path, "tmpfs", ("nosuid", "nodev"), size=bound)


def _csv(field: str) -> str:
    if any(character in field for character in ',"\r\n') or field != field.strip():
        return '"' + field.replace('"', '""') + '"'
    return field
