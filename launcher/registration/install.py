"""Installing and uninstalling a registration: decided first, as a value that can be shown, and then performed.

The rule: nothing that is not ours is lost. What lay at a path of ours before is kept in the record and put back; what
was changed since is refused by name, every one at once, before anything is done.
"""

import os
import shlex
import shutil

from launcher.registration import change, conf, program, trust
from launcher.registration.change import KEEP, REMOVE, RESTORE, WRITE, Change, Record
from launcher.registration.scope import USER, Scope
from launcher.run import site
from launcher.value import Value
from oci import hooksd
from oci.refusal import Refusal, Refused


class Plan(Value):
    """What is to be done in a scope: its changes, the program that goes with them, and the record to be left."""

    scope: Scope
    changes: tuple[Change, ...]
    place: str = ""
    program: dict[str, bytes]
    record: Record | None

    @property
    def writes(self) -> dict[str, bytes]:
        """Return what the files hold afterwards, by path."""
        return {one.path: one.data for one in self.changes if one.data is not None}

    @property
    def changed(self) -> bool:
        """Return whether anything is different afterwards."""
        return any(one.action != KEEP for one in self.changes)


def installation(scope: Scope, *, force: bool = False) -> Plan:
    """Return what an installation would do; raises Refused with every reason against it."""
    files = program.sources()
    place = f"{scope.programs}/{program.digest(files)}"
    old = None if force and not _readable(scope) else change.load(scope)
    _not_elsewhere(scope, old)
    now = {path: change.current(scope.real(path)) for path in _paths(scope)}
    refusals = [*_where(scope), *_untrusted(scope)]
    refusals += [] if force else _changed(scope, now, old)
    if refusals:
        raise Refused(refusals)
    before = _before(scope, now, old)
    wanted = {f"{scope.hooks_d}/{file.name}": hooksd.render(file).encode() for file in program.pair(scope, files)}
    named = _named(scope, before[scope.drop_in], old)
    if named:
        wanted[scope.drop_in] = conf.with_directories(scope.drop_in, before[scope.drop_in], named)
    changes = [_write(path, data, now[path]) for path, data in wanted.items()]
    whole = _is_whole(scope.real(place), files)
    changes.insert(0, Change(action=KEEP if whole else WRITE, path=place))
    programs = tuple(dict.fromkeys([*(old.programs if old else ()), place]))
    record = Record(
        files={path: change.mark(data) for path, data in wanted.items()},
        before={path: before[path] for path in wanted},
        made=old.made if old else (),
        programs=programs,
        named=named,
    )
    return Plan(scope=scope, changes=tuple(changes), place=place, program=files, record=record)


def _readable(scope: Scope) -> bool:
    try:
        change.load(scope)
    except Refused:
        return False
    return True


def _paths(scope: Scope) -> list[str]:
    pair = [f"{scope.hooks_d}/{name}" for name in (hooksd.PRESTART_FILE, hooksd.POSTSTOP_FILE)]
    return [*pair, scope.drop_in]


def _not_elsewhere(scope: Scope, old: Record | None) -> None:
    """Refuse a directory for the pair that is not the recorded one: it would lose its record and its program."""
    for path in old.files if old else ():
        folder = os.path.dirname(path)
        if path != scope.drop_in and folder != scope.hooks_d:
            there = "" if folder == site.DEFAULT else f" --hooks-dir {shlex.quote(folder)}"
            text = f"the hooks are registered in {folder}, and once is enough"
            raise Refused([Refusal("registration-elsewhere", text, f"card hooks uninstall --{scope.name}{there}")])


def _where(scope: Scope) -> list[Refusal]:
    """Refuse a place that podman would not look at."""
    if scope.name == USER and os.getuid() == 0:
        text = "root's podman reads no configuration of a user's"
        return [Refusal("registration-unread", text, "card hooks install --system")]
    if scope.name == USER and os.environ.get("CONTAINERS_CONF"):
        text = f"CONTAINERS_CONF is set, so podman reads {os.environ['CONTAINERS_CONF']} and no drop-in"
        return [Refusal("registration-unread", text, f"unset it, or name {scope.hooks_d} in its hooks_dir")]
    return []


def _untrusted(scope: Scope) -> list[Refusal]:
    """Refuse places and an interpreter that somebody else could change; a DESTDIR is judged where it is unpacked."""
    if scope.root:
        return []
    owner = os.geteuid()
    places = [_there(path) for path in (scope.programs, *_paths(scope))]
    found = [problem for path in (*places, program.python(scope)) for problem in trust.problems(path, owner=owner)]
    hint = "what a hook runs must be changeable by you and root alone: chmod go-w, or another place"
    return [Refusal("registration-untrusted", problem, hint) for problem in dict.fromkeys(found)]


def _there(path: str) -> str:
    """Return the path, or the nearest folder above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _changed(scope: Scope, now: dict[str, bytes | None], old: Record | None) -> list[Refusal]:
    """Refuse each file of ours that somebody changed; a drop-in that was there before us is not one yet."""
    found: list[Refusal] = []
    for path, data in now.items():
        known = old.files.get(path) if old else None
        if data is None or (known is not None and change.mark(data) == known):
            continue
        if known is None and (path == scope.drop_in or _is_ours(path, data)):
            continue
        text = f"{path} is not as card-run left it"
        found.append(Refusal("registration-changed", text, "look at it; --force takes card-run's part out or anew"))
    return found


def _is_ours(path: str, data: bytes) -> bool:
    try:
        hooksd.parse(os.path.basename(path), data)
    except Refused:
        return False
    return True


def _before(scope: Scope, now: dict[str, bytes | None], old: Record | None) -> dict[str, bytes | None]:
    """Return what each path held before us; of a drop-in that was changed since, what it holds without our part."""
    found: dict[str, bytes | None] = {}
    for path, data in now.items():
        unchanged = old is not None and (data is None or old.files.get(path) == change.mark(data))
        if old is not None and unchanged:
            found[path] = old.before.get(path)
        elif data is None or path != scope.drop_in:
            found[path] = None if data is None or _is_ours(path, data) else data
        else:
            found[path] = data if old is None else _without_us(scope, data, old)
    return found


def _without_us(scope: Scope, data: bytes, old: Record) -> bytes | None:
    """Return what a drop-in that was changed since holds without our part; what was never ours holds none."""
    if not old.named:
        return data
    return conf.without_directories(scope.drop_in, data, old.before.get(scope.drop_in), old.named)


def _named(scope: Scope, before: bytes | None, old: Record | None) -> tuple[str, ...]:
    """Return what the drop-in is to name: the directories that podman has without it, and ours last.

    None where those hold ours already, unless one was written once: taking it away is left to an uninstallation.
    """
    sites = (site.DEFAULT,) if scope.root else conf.effective({scope.drop_in: before}, everyone=scope.everyone)
    if scope.hooks_d in sites and not (old and old.named):
        return ()
    return (*(path for path in sites if path != scope.hooks_d), scope.hooks_d)


def _write(path: str, data: bytes, now: bytes | None) -> Change:
    return Change(action=KEEP if now == data else WRITE, path=path, data=data)


def _is_whole(place: str, files: dict[str, bytes]) -> bool:
    try:
        return program.read(place, files) == files
    except OSError:
        return False


def removal(scope: Scope, *, force: bool = False) -> Plan:
    """Return what an uninstallation would do; raises Refused for each file of ours that somebody changed since."""
    old = change.load(scope) or Record(files={}, before={})
    _not_elsewhere(scope, old)
    now = {path: change.current(scope.real(path)) for path in _paths(scope)}
    ours = {
        path: data for path, data in now.items() if data is not None and (path in old.files or _is_ours(path, data))
    }
    if not force and (refusals := _changed(scope, dict(ours), old)):
        raise Refused(refusals)
    changes = [_undo(scope, path, data, old) for path, data in ours.items()]
    folders = [path for path in old.programs if os.path.dirname(path) == scope.programs]
    changes += [Change(action=REMOVE, path=path) for path in folders if os.path.isdir(scope.real(path))]
    return Plan(scope=scope, changes=tuple(changes), program={}, record=old if old.files else None)


def _undo(scope: Scope, path: str, data: bytes, old: Record) -> Change:
    before, back = old.before.get(path), RESTORE
    if path == scope.drop_in and old.files.get(path) != change.mark(data):
        before, back = _without_us(scope, data, old), WRITE
    return Change(action=REMOVE if before is None else back, path=path, data=before)


def perform(plan: Plan) -> None:
    """Do what the plan says; raises Refused when a file cannot be written, and what was done until then stands."""
    try:
        if plan.place:
            _install(plan)
        else:
            _uninstall(plan)
    except OSError as error:
        text = f"{error.filename or 'a file'}: {os.strerror(error.errno or 0)}"
        hint = "for every user of the bench, run it as root" if plan.scope.name != USER else ""
        raise Refused([Refusal("registration-unwritable", text, hint)]) from None


def _install(plan: Plan) -> None:
    scope, record = plan.scope, plan.record
    assert record is not None  # noqa: S101 - an installation has one
    made: list[str] = []
    for path in (scope.programs, *(os.path.dirname(one) for one in record.files), os.path.dirname(scope.state)):
        made += change.make_folder(scope.real(path))
    made = [path.removeprefix(scope.root) for path in made]
    # The record first: an installation that is cut short can be undone.
    change.save(scope, record.replace(made=tuple(dict.fromkeys([*record.made, *made]))))
    first, *files = plan.changes
    if first.action == WRITE:
        change.put_tree(scope.real(plan.place), plan.program)
        program.compile_all(scope, plan.place)
    for one in files:
        if one.action == WRITE and one.data is not None:
            change.put(scope.real(one.path), one.data)


def _uninstall(plan: Plan) -> None:
    """Take the files away, the drop-in first: podman must not look for hooks that are gone."""
    scope = plan.scope
    for one in sorted(plan.changes, key=lambda one: one.path != scope.drop_in):
        path = scope.real(one.path)
        if one.data is not None:
            change.put(path, one.data)
        elif os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
    if os.path.lexists(scope.real(scope.state)):
        os.unlink(scope.real(scope.state))
    for folder in reversed(plan.record.made if plan.record else ()):
        if os.path.isdir(scope.real(folder)) and not os.listdir(scope.real(folder)):
            os.rmdir(scope.real(folder))
