"""The first half of a plan: everything that can be decided from the command line, without a packet.

Judging a `Request` gives a `Launch` and every refusal at once. A launch is what podman's argv is made from, so that
podman can be started while names are still being resolved (`launcher.plan` is the second half).
"""

import os

from launcher import bench, environment, guard, limits, network
from launcher.egress import policy
from launcher.egress.nameservers import Nameservers
from launcher.fs import policy as filesystem
from launcher.fs import searched
from launcher.fs.paths import WRITE, ancestors, config_home
from launcher.fs.policy import Filesystem
from launcher.fs.searched import Programs
from launcher.limits import Limits
from launcher.request import Request
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from launcher.fs.keep import Kept
    from launcher.reach import Bounds

_RUN_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_RUN_LIMIT = 48
_REFERENCE_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ._-/:@")


class Launch(Value):
    """What this run is, before its names have addresses.

    `asked` is the request after `bounds`: the card's own profile or the bench's ceiling, None when there is neither.
    `cold` is why it is started from nothing, None for a run that takes a warm card; `programs` is what PATH comes to
    (`launcher.fs.searched`), and `before_podman` is for the aftermath.
    """

    asked: Request
    bounds: "Bounds | None"
    run: str
    token: str
    image: str
    command: tuple[str, ...]
    user: str
    net: str
    dns: str | None
    wants_dns: bool
    filesystem: Filesystem
    kept: "tuple[Kept, ...]" = ()
    policy_path: str
    names: tuple[str, ...]
    nameservers: Nameservers
    resolve_timeout: float
    route4: bool
    route6: bool
    env: tuple[tuple[str, str], ...]
    detach: bool
    interactive: bool
    tty: bool
    podman_arg: tuple[str, ...]
    limits: Limits
    best_effort: bool
    landlock: str
    notes: tuple[str, ...]
    programs: Programs
    cold: str | None = "no pool was asked"
    before_podman: tuple[str, ...] = ()


def judge(request: Request, *, bench_bounds: bool = True) -> tuple[Launch, list[Refusal]]:
    """Return the launch that the request asks for, and every refusal that its flags earn. Sends no packet.

    Without `bench_bounds` it is no run that is judged, and the bench's ceiling is not asked.
    """
    request, held_to, bounded = _bounded(request) if bench_bounds else (request, None, list[Refusal]())
    run, refusals = _run_id(request.run)
    refusals += _command(request) + _image(request.image) + podman_arguments(request.podman_arg) + remote()
    path = request.egress or default_policy()
    names, asked = _names(request, path)
    servers, deaf = network.servers(request)
    roots, closed = filesystem.decide(_filesystem(request), forbidden=guard.forbidden(), hidden=guard.hidden())
    kept, unkept = _kept(request, roots, held_to, path)
    home, notes, homeless = _home(request, roots)
    env, dropped, unset = environment.decide(
        home=home, asked=request.env, files=request.env_file, host=request.env_host
    )
    bounds, unbounded = limits.decide({name: getattr(request, name) for name in limits.NAMES})
    route4, route6 = network.routes(request)
    programs, unnamed = _programs()
    launch = Launch(
        asked=request,
        bounds=held_to,
        run=run,
        token=os.urandom(16).hex(),
        image=request.image,
        command=request.command,
        user=request.user,
        net=request.net,
        dns=network.card_dns(request, route4=route4, route6=route6),
        wants_dns=request.dns == "question",
        filesystem=roots,
        kept=kept,
        policy_path=path,
        names=names,
        nameservers=servers,
        resolve_timeout=request.resolve_timeout,
        route4=route4,
        route6=route6,
        env=env,
        detach=request.detach,
        interactive=request.interactive,
        tty=request.tty,
        podman_arg=request.podman_arg,
        limits=bounds,
        best_effort=request.limits == "best-effort",
        landlock=request.landlock,
        programs=programs,
        before_podman=searched.planted(programs.before, roots.roots),
        notes=(
            *(request.merged.notes if request.merged else ()),
            *(held_to.notes if held_to else ()),
            *(request.opened.notes if request.opened else ()),
            *servers.notes,
            *programs.notes,
            *notes,
            *dropped,
            *_worktrees(roots),
        ),
    )
    return launch, [
        *bounded,
        *refusals,
        *asked,
        *deaf,
        *closed,
        *guard.deciding_files(request, path, roots),
        *([] if _too_wide(closed) else guard.configuration(roots)),
        *guard.secluded(roots),
        *unnamed,
        *guard.podman(programs.podman, roots),
        *_granted(request, roots, env),
        *unkept,
        *homeless,
        *unset,
        *unbounded,
        *network.no_route(request, route4=route4, route6=route6),
    ]


def _programs() -> tuple[Programs, list[Refusal]]:
    """Return what PATH comes to, and why the podman that was named is none."""
    try:
        return searched.look(), []
    except Refused as error:
        return Programs(podman=None, folders=()), list(error.refusals)


def _kept(
    request: Request, roots: Filesystem, held_to: "Bounds | None", policy_path: str
) -> "tuple[tuple[Kept, ...], list[Refusal]]":
    """Return what of the card's own is kept between runs, and why it cannot be."""
    if request.keep is None:
        return (), []
    from launcher.fs import keep, protect  # only for a caller that runs many cards as one

    kept, refusals = keep.decide(request.keep, roots, forbidden=guard.forbidden(), look_only=request.plan)
    written = keep.as_roots(kept)
    exposed = [
        *guard.deciding_files(request, policy_path, roots.replace(roots=written)),
        *([] if _too_wide(refusals) else guard.configuration(roots.replace(roots=written))),
        *(one for one in protect.secrets(list(request.secret), list(written)) if one.reason == "secret-exposed"),
    ]
    refusals += [Refusal(one.reason, one.text.replace("--write", keep.FLAG), one.hint) for one in exposed]
    if request.home != "isolated":
        refusals.append(Refusal("keep-contradiction", "--keep keeps the card's own HOME, and --home real names yours"))
    if request.tmp_size is not None:
        text = "--tmp-size cannot bound what --keep keeps on the bench's own file system"
        refusals.append(Refusal("keep-contradiction", text, "leave one of them out"))
    if held_to is not None and held_to.ceiling is not None:
        from launcher.reach import may_write
        from launcher.roots import CEILING

        if not may_write(held_to.ceiling, request.keep):
            text = f"--keep {request.keep!r}: {CEILING} does not let cards write there"
            refusals.append(Refusal("ceiling-path", text, "keep it in a place that the ceiling has for writing"))
    return kept, refusals


def _bounded(request: Request) -> "tuple[Request, Bounds | None, list[Refusal]]":
    """Return the request as its profile and the bench's ceiling leave it, and why it cannot run so."""
    request = request.replace(opened=None)  # only tokens open anything
    ceiling, refusals = bench.ceiling()
    if ceiling is None and request.profile is None and not request.grant:
        return request, None, refusals
    if request.grant:
        from launcher.grants import opening

        policy_path = request.egress or default_policy()
        request, bounds, refused = opening.bounded(request, ceiling, policy=policy_path)
    else:
        from launcher import reach  # 4 ms that only a run with a profile or a ceiling pays

        request, bounds, refused = reach.bound(request, ceiling)
    return request, bounds, [*refusals, *refused]


def _granted(request: Request, roots: Filesystem, env: tuple[tuple[str, str], ...]) -> list[Refusal]:
    """Refuse a granted path that was swapped since its token was compared, and variables that changed since."""
    if request.opened is None:
        return []
    from launcher.grants import opening

    return [*opening.rooted(roots, request.opened.grants), *opening.varied(env, request.opened)]


def _filesystem(request: Request) -> filesystem.Asked:
    return filesystem.Asked(
        read=request.read,
        noexec=request.read_noexec,
        write=request.write,
        protect=request.protect,
        secret=request.secret,
        granted=request.opened.write if request.opened else (),
        cwd=request.cwd,
        git_writable=request.git_writable,
        look_only=request.plan,
    )


def _worktrees(roots: Filesystem) -> tuple[str, ...]:
    """Return a note for each root that is a worktree of a repository which the card does not have."""
    tops = [root.path for root in roots.roots if root.directory and os.path.isfile(f"{root.path}/.git")]
    if not tops:
        return ()
    from launcher.fs.git import worktree

    return tuple(worktree.notes(tops, roots.roots))


def _run_id(text: str | None) -> tuple[str, list[Refusal]]:
    """Return the run id, drawn at random when none is named; it becomes an nft identifier."""
    if text is None:
        return f"c{os.urandom(5).hex()}", []
    if 0 < len(text) <= _RUN_LIMIT and _RUN_ALPHABET.issuperset(text) and text[0] != "_":
        return text, []
    hint = f"1 to {_RUN_LIMIT} of a-z, 0-9 and _, not starting with _"
    return "invalid", [Refusal("bad-run-id", f"--run {text!r} is not a run id", hint)]


def _command(request: Request) -> list[Refusal]:
    refusals: list[Refusal] = []
    if not request.command or not request.command[0]:
        where = "command = [...] in the card, or " if request.merged and request.merged.card else ""
        hint = f"{where}card-run [options] -- COMMAND [ARG...]"
        refusals.append(Refusal("no-command", "there is no command to run", hint))
    if any(0xD800 <= ord(character) <= 0xDFFF for word in request.command for character in word):
        refusals.append(Refusal("bad-command", "the command is not UTF-8"))
    if not 0 < request.resolve_timeout <= 30:
        refusals.append(Refusal("bad-timeout", "--resolve-timeout takes seconds, above 0 and at most 30"))
    if request.detach and request.lifeline is not None:
        text = "--detach parts the card from its caller, and --lifeline ends it with that"
        refusals.append(Refusal("detach-contradiction", text, "leave one of them out"))
    return refusals


def _image(text: str) -> list[Refusal]:
    """Refuse a short name: the bench's registries.conf would say what it means."""
    domain, slash, rest = text.partition("/")
    full = bool(slash and rest) and ("." in domain or ":" in domain or domain == "localhost")
    if full and _REFERENCE_ALPHABET.issuperset(text) and text[0].isalnum():
        return []
    return [Refusal("bad-image", f"--image {text!r} is not a full reference", "write REGISTRY/NAME:TAG")]


def rootless() -> list[Refusal]:
    """Refuse root: its containers share the bench's own user namespace, where uid 0 is the bench's root."""
    if os.getuid() != 0:
        return []
    text = "card-run runs rootless podman, and root's containers are not"
    return [Refusal("not-rootless", text, "run it as an ordinary user")]


def _too_wide(refusals: list[Refusal]) -> bool:
    """Return whether a root is refused already for what it is or holds: what follows from that is not told again."""
    return any(one.reason == "path-too-wide" for one in refusals)


def installed(launch: Launch, refusals: list[Refusal]) -> list[Refusal]:
    """Refuse when the worker of a launch could write this very card-run, or what it is run by; not once more."""
    roots = launch.filesystem
    if _too_wide(refusals):
        return []
    if launch.kept:
        from launcher.fs import keep

        roots = roots.replace(roots=(*roots.roots, *keep.as_roots(launch.kept)))
    return guard.installed(roots)


def remote() -> list[Refusal]:
    """Refuse a podman on another machine: the hooks that it would run are not ours."""
    named = [name for name in ("CONTAINER_HOST", "CONTAINER_CONNECTION") if os.environ.get(name)]
    text = "is set: the hooks of a remote podman are not ours"
    return [Refusal("remote-podman", f"{name} {text}", f"unset {name}") for name in named]


def podman_arguments(arguments: tuple[str, ...]) -> list[Refusal]:
    """Refuse what could open a wall: only options that are known to be harmless pass."""
    refusals: list[Refusal] = []
    for argument in arguments:
        option = argument.partition("=")[0]
        if option not in HARMLESS_PODMAN_ARGUMENTS:
            known = ", ".join(HARMLESS_PODMAN_ARGUMENTS)
            refusals.append(Refusal("podman-arg", f"--podman-arg {argument} could open a wall", f"these pass: {known}"))
        elif "=" not in argument:
            refusals.append(Refusal("podman-arg", f"--podman-arg {argument} has no value", f"write {option}=VALUE"))
    return refusals


HARMLESS_PODMAN_ARGUMENTS = ("--label", "--cpu-shares", "--tz")


def default_policy() -> str:
    """Return the policy file that is used when no flag names one: the user's, the bench's, or the shipped one."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    shipped = f"{here}/infra/image/egress.txt"
    candidates = (f"{config_home()}/card-run/egress.txt", "/etc/card-run/egress.txt")
    return next((path for path in candidates if os.path.exists(path)), shipped)


def _names(request: Request, path: str) -> tuple[tuple[str, ...], list[Refusal]]:
    if request.net == network.NONE:
        asked = [*(["--model-host"] if request.model_host else []), *(["--allow-host"] if request.allow_host else [])]
        text = "asks for a name, and --net none reaches none"
        return (), [Refusal("no-network", f"{flag} {text}", "leave one of them out") for flag in asked]
    universe, refusals = policy.read(path)
    if request.opened is not None and request.opened.hosts:
        return request.opened.hosts, refusals  # the network is gated: these, and not even the base names
    names, unknown = policy.choose(universe, model_host=request.model_host, allow_hosts=list(request.allow_host))
    return tuple(names), refusals + unknown


def _home(request: Request, roots: Filesystem) -> tuple[str, list[str], list[Refusal]]:
    """Return the worker's HOME, a note when it is real and out of reach, and a refusal when it is none."""
    if request.home == "isolated":
        return filesystem.HOME, [], []
    home = os.environ.get("HOME", "")
    if not home.startswith("/") or not os.path.isdir(home):
        return filesystem.HOME, [], [Refusal("bad-home", f"--home real: HOME={home!r} is not a directory")]
    holders = set(ancestors(home))
    writable = any(root.access == WRITE and (root.device, root.inode) in holders for root in roots.roots)
    return home, [] if writable else [f"--home real: {home} itself is not writable in the card"], []
