"""A registration: what is written, what is kept, what is undone to the byte, and what is refused."""

import os
import stat
from pathlib import Path

import pytest
import typer

from launcher.registration import change, conf, install, program, scope, status, trust
from launcher.registration.scope import DROP_IN, Scope
from launcher.run import site
from launcher.verbs import hooks
from oci import hooksd
from oci.refusal import Refused

SITE = b"""\
# the site's own, with a comment
[engine]
# kept
cgroup_manager = "cgroupfs"   # and this
hooks_dir = ["/site/hooks.d"] # theirs
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scope:
    """Return a registration below a directory that stands for the user's, which podman's configuration knows."""
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return scope.user().replace(name="test")  # root is refused a user's registration, and runs these tests


def drop_in(mine: Scope) -> Path:
    """Return the drop-in's path."""
    assert mine.drop_in is not None
    return Path(mine.drop_in)


def everything(top: Path) -> dict[str, bytes]:
    """Return every file and folder below a directory."""
    return {str(path): path.read_bytes() if path.is_file() else b"/" for path in top.rglob("*")}


def installed(mine: Scope) -> install.Plan:
    """Install, and return what was done."""
    plan = install.installation(mine)
    install.perform(plan)
    return plan


def actions(plan: install.Plan) -> set[str]:
    """Return the kinds of changes in a plan."""
    return {one.action for one in plan.changes}


def test_install_and_again_and_uninstall(mine: Scope, tmp_path: Path) -> None:
    """The pair and the drop-in are written, a second time nothing is, and afterwards nothing is left."""
    before = everything(tmp_path)
    assert actions(installed(mine)) == {change.WRITE}
    pair = [hooksd.parse(name, (Path(mine.hooks_d) / name).read_bytes()) for name in os.listdir(mine.hooks_d)]
    assert {file.stage for file in pair} == {hooksd.CREATE_RUNTIME, hooksd.POSTSTOP}
    assert all(Path(program.entry_of(file)).is_file() for file in pair)
    assert site.hooks_dirs() == (site.DEFAULT, mine.hooks_d)
    assert actions(installed(mine)) == {change.KEEP}
    install.perform(install.removal(mine))
    assert everything(tmp_path) == before
    assert install.removal(mine).changes == ()


def test_nothing_is_done_by_planning(mine: Scope, tmp_path: Path) -> None:
    """A plan alone, as --dry-run has it, changes nothing."""
    install.installation(mine)
    assert everything(tmp_path) == {}


def test_the_sites_directories_are_kept(mine: Scope) -> None:
    """hooks_dir replaces: what earlier files name is named again, before ours."""
    main = drop_in(mine).parent.parent / "containers.conf"
    main.parent.mkdir(parents=True)
    main.write_bytes(SITE)
    installed(mine)
    assert site.hooks_dirs() == ("/site/hooks.d", mine.hooks_d)
    main.write_bytes(SITE.replace(b"/site/", b"/moved/"))
    (lost,) = [one for one in status.look(mine) if one.name == "site's hooks"]
    assert "/moved/hooks.d" in lost.found
    assert actions(installed(mine)) == {change.KEEP, change.WRITE}
    assert site.hooks_dirs() == ("/moved/hooks.d", mine.hooks_d)


def test_a_drop_in_that_was_there_is_kept_and_put_back(mine: Scope) -> None:
    """Its comments and settings stay, our directory is added, and uninstalling gives the very bytes back."""
    drop_in(mine).parent.mkdir(parents=True)
    drop_in(mine).write_bytes(SITE)
    drop_in(mine).chmod(0o600)
    installed(mine)
    text = drop_in(mine).read_text()
    assert "# kept\n" in text
    assert 'cgroup_manager = "cgroupfs"   # and this' in text
    assert site.hooks_dirs() == ("/site/hooks.d", mine.hooks_d)
    assert actions(installed(mine)) == {change.KEEP}
    install.perform(install.removal(mine))
    assert drop_in(mine).read_bytes() == SITE
    assert stat.S_IMODE(drop_in(mine).stat().st_mode) == 0o600


def test_a_drop_in_that_was_changed_since(mine: Scope) -> None:
    """It is named and left alone; forced, only our directory goes, and what was added stays."""
    installed(mine)
    added = drop_in(mine).read_bytes() + b'runtime = "crun" # mine\n'
    drop_in(mine).write_bytes(added)
    for make in (install.installation, install.removal):
        with pytest.raises(Refused, match=f"registration-changed {drop_in(mine)}"):
            make(mine)
    assert drop_in(mine).read_bytes() == added
    install.perform(install.removal(mine, force=True))
    assert b'runtime = "crun" # mine' in drop_in(mine).read_bytes()
    assert site.hooks_dirs() == (site.DEFAULT,)


CHANGES = {
    "a comment in a file of ours": (None, b"# mine\n", b"[engine]\n# mine\n"),
    "a key in a file of ours": (None, b'runtime = "crun"\n', b'[engine]\nruntime = "crun"\n'),
    "a blank line in a file of ours": (None, b"\n", None),
    "a comment in a file of theirs": (SITE, b"# mine\n", SITE + b"# mine\n"),
    "a comment in a file of theirs without the key": (b"# theirs\n", b"# mine\n", b"# theirs\n\n[engine]\n# mine\n"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_forced_away_nothing_of_ours_stays(what: str, mine: Scope) -> None:
    """A changed drop-in keeps what was added, and its hooks_dir is what it was: what the site names later counts."""
    theirs, added, left = CHANGES[what]
    main = drop_in(mine).parent.parent / "containers.conf"
    drop_in(mine).parent.mkdir(parents=True)
    if theirs is not None:
        drop_in(mine).write_bytes(theirs)
    main.write_bytes(SITE.replace(b"/site/", b"/early/"))
    installed(mine)
    main.write_bytes(SITE.replace(b"/site/", b"/later/"))
    drop_in(mine).write_bytes(drop_in(mine).read_bytes() + added)
    install.perform(install.removal(mine, force=True))
    assert conf.read(str(drop_in(mine))) == left
    assert site.hooks_dirs() == (("/site/hooks.d",) if theirs == SITE else ("/later/hooks.d",))


def test_forced_away_from_a_list_that_was_changed(mine: Scope) -> None:
    """A directory that somebody added to our list is theirs, and stays."""
    installed(mine)
    text = drop_in(mine).read_text()
    drop_in(mine).write_text(text.replace("hooks_dir = [\n", 'hooks_dir = [\n    "/added",\n'))
    install.perform(install.removal(mine, force=True))
    assert site.hooks_dirs() == ("/added", site.DEFAULT)


def test_podmans_own_directory_needs_a_drop_in_only_where_it_is_not_read(
    mine: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's hooks_dir without podman's own directory keeps the hooks there unread: then it is named after theirs."""
    monkeypatch.setattr(site, "DEFAULT", mine.hooks_d)
    installed(mine)
    assert not drop_in(mine).exists()
    main = drop_in(mine).parent.parent / "containers.conf"
    main.parent.mkdir(parents=True)
    main.write_bytes(SITE)
    (bad,) = [one for one in status.look(mine) if not one.good]
    assert (bad.name, bad.hint) == ("containers.conf", "card hooks install --test")
    installed(mine)
    assert site.hooks_dirs() == ("/site/hooks.d", mine.hooks_d)
    assert all(one.good for one in status.look(mine))
    assert actions(installed(mine)) == {change.KEEP}
    install.perform(install.removal(mine))
    assert main.read_bytes() == SITE
    assert not drop_in(mine).exists()


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_an_installation_that_podman_would_not_use(
    mine: Scope, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, taken: bool, dry_run: bool
) -> None:
    """Exit status 1, and what status says of it: a file further along names other directories."""
    monkeypatch.setattr(scope, "user", lambda: mine)
    later = drop_in(mine).with_name("zzz.conf")
    if taken:
        later.parent.mkdir(parents=True)
        later.write_text('[engine]\nhooks_dir = ["/peer"]\n')
    with pytest.raises(typer.Exit) as ended:
        hooks.install(user=True, dry_run=dry_run)
    told = capsys.readouterr()
    assert ended.value.exit_code == (1 if taken else 0)
    assert (f"{later} names /peer: the hooks in {mine.hooks_d} are silently not used" in told.err) is taken
    assert f"{mine.drop_in}\n" in told.out
    assert drop_in(mine).exists() is not dry_run


def test_what_every_user_has(mine: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the bench as a whole neither the caller's environment nor the caller's own files count."""
    installed(mine)
    assert mine.hooks_d in conf.effective()
    assert mine.hooks_d not in conf.effective(everyone=True)
    monkeypatch.setenv("CONTAINERS_CONF", "/elsewhere.conf")
    assert not any("elsewhere" in path for path in site.files(everyone=True))


def test_a_second_place_for_the_pair_is_refused(tmp_path: Path) -> None:
    """One prefix keeps one record: another directory's pair would lose its program with the first one's removal."""
    first = scope.system(hooks_d="/etc/first", root=str(tmp_path))
    installed(first)
    before = everything(tmp_path)
    second = scope.system(root=str(tmp_path))
    hint = r"card hooks uninstall --system --hooks-dir /etc/first\)"
    for refused in (install.installation, install.removal):
        for force in (False, True):
            with pytest.raises(Refused, match=f"registration-elsewhere the hooks are registered in /etc/first.*{hint}"):
                refused(second, force=force)
    assert everything(tmp_path) == before
    install.perform(install.removal(first))
    assert everything(tmp_path) == {}


def test_a_hook_file_that_was_changed_since(mine: Scope) -> None:
    """It is not clobbered; status names it; --force writes it anew."""
    installed(mine)
    path = Path(mine.hooks_d) / hooksd.PRESTART_FILE
    path.write_text(path.read_text().replace('"timeout":75', '"timeout":76'))
    with pytest.raises(Refused, match="registration-changed"):
        install.installation(mine)
    assert any(one.name == "changed" and str(path) in one.found for one in status.look(mine))
    install.perform(install.installation(mine, force=True))
    assert all(one.good for one in status.look(mine))


def test_somebody_elses_file_under_our_name(mine: Scope) -> None:
    """What was never ours is refused, and after --force and uninstall it is there again."""
    path = Path(mine.hooks_d) / hooksd.POSTSTOP_FILE
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(Refused, match="registration-changed"):
        install.installation(mine)
    install.perform(install.installation(mine, force=True))
    install.perform(install.removal(mine))
    assert path.read_text() == "{}"


def test_cut_short_and_undone(mine: Scope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that fails half way leaves a record, by which it can be undone."""
    real = change.put

    def fails(path: str, data: bytes) -> None:
        if path.endswith(hooksd.POSTSTOP_FILE):
            raise OSError(28, "No space left on device", path)
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(change, "put", fails)
        with pytest.raises(Refused, match="registration-unwritable"):
            installed(mine)
    install.perform(install.removal(mine))
    assert everything(tmp_path) == {}


def test_a_later_file_that_takes_the_hooks_away(mine: Scope) -> None:
    """A drop-in further along with another hooks_dir is detected, and named."""
    installed(mine)
    assert all(one.good for one in status.look(mine))
    later = drop_in(mine).with_name("zzz.conf")
    later.write_text('[engine]\nhooks_dir = ["/peer"]\n')
    (bad,) = [one for one in status.look(mine) if not one.good]
    assert (bad.name, str(later) in bad.found, str(later) in bad.hint) == ("containers.conf", True, True)
    later.write_text('engine.hooks_dir = ["/peer"]\n')
    assert [one.name for one in status.look(mine) if not one.good] == ["containers.conf"]


def test_a_pair_further_along_shadows_ours(mine: Scope, tmp_path: Path) -> None:
    """Podman takes the last file of a name: another registration behind ours is named."""
    installed(mine)
    other = tmp_path / "other"
    other.mkdir()
    (other / hooksd.PRESTART_FILE).touch()
    later = drop_in(mine).with_name("zzz.conf")
    later.write_text(f'[engine]\nhooks_dir = ["{mine.hooks_d}", "{other}"]\n')
    assert [one.name for one in status.look(mine) if not one.good] == ["site's hooks", "shadowed"]


@pytest.mark.parametrize("damage", ["missing", "older"])
def test_a_program_that_is_gone_or_of_another_version(damage: str, mine: Scope) -> None:
    """Podman drops a hook whose program is missing without a word; status does not."""
    installed(mine)
    entry = Path(program.entry_of(hooksd.parse(*_prestart(mine))))
    if damage == "missing":
        entry.unlink()
    else:
        (entry.parent / "audit.py").write_text("# older\n")
    assert "program" in [one.name for one in status.look(mine) if not one.good]
    install.perform(install.installation(mine))
    assert all(one.good for one in status.look(mine))


def _prestart(mine: Scope) -> tuple[str, bytes]:
    path = Path(mine.hooks_d) / hooksd.PRESTART_FILE
    return path.name, path.read_bytes()


def test_who_may_change_it(mine: Scope, tmp_path: Path) -> None:
    """A directory on the way that others may write is refused before, and told afterwards."""
    tmp_path.chmod(0o777)
    with pytest.raises(Refused, match="registration-untrusted"):
        install.installation(mine)
    tmp_path.chmod(0o700)
    installed(mine)
    Path(mine.programs).chmod(0o775)
    assert [one.name for one in status.look(mine) if not one.good] == ["ownership"]


def test_trust(tmp_path: Path) -> None:
    """Every directory on the way counts, of a link both ways; the sticky bit keeps an entry its owner's."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    (real / "file").touch()
    link.symlink_to(real)
    owner = os.geteuid()
    assert trust.problems(str(link / "file"), owner=owner) == []
    real.chmod(0o777)
    assert any(str(real) in text for text in trust.problems(str(link / "file"), owner=owner))
    real.chmod(0o1777)
    assert trust.problems(str(link / "file"), owner=owner) == []
    os.chown(real, 4242, 4242)
    assert any("uid 4242" in text for text in trust.problems(str(link / "file"), owner=owner))
    assert trust.problems(str(real / "gone"), owner=4242)


def test_a_whole_configuration_elsewhere(mine: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    """With CONTAINERS_CONF podman reads no drop-in, so a user's registration there is refused."""
    monkeypatch.setenv("CONTAINERS_CONF", "/elsewhere.conf")
    with pytest.raises(Refused, match="registration-unread"):
        install.installation(mine.replace(name=scope.USER))


def test_not_toml(mine: Scope) -> None:
    """A drop-in of that name that is no TOML is refused and left."""
    drop_in(mine).parent.mkdir(parents=True)
    drop_in(mine).write_text("hooks_dir = [")
    with pytest.raises(Refused, match="containers-conf"):
        install.installation(mine)
    assert drop_in(mine).read_text() == "hooks_dir = ["


def test_destdir(tmp_path: Path) -> None:
    """For packages: everything below DESTDIR, and every path in the files as it is once installed."""
    where = scope.system(prefix="/usr", root=str(tmp_path))
    installed(where)
    pair = hooksd.parse(*_prestart(where.replace(hooks_d=f"{tmp_path}{where.hooks_d}")))
    assert where.hooks_d == site.DEFAULT
    assert program.entry_of(pair).startswith("/usr/lib/card-run/registered/")
    assert Path(f"{tmp_path}{program.entry_of(pair)}").is_file()
    assert str(tmp_path).encode() not in b"".join(everything(tmp_path).values())
    install.perform(install.removal(where))
    assert everything(tmp_path) == {}


def test_a_system_registration_elsewhere_has_a_drop_in(tmp_path: Path) -> None:
    """Podman looks into /usr/share alone by itself: another directory needs to be named to it."""
    where = scope.system(hooks_d="/etc/containers/oci/hooks.d", root=str(tmp_path))
    installed(where)
    named = conf.with_directories("x", None, (site.DEFAULT, "/etc/containers/oci/hooks.d"))
    assert (tmp_path / f"etc/containers/containers.conf.d/{DROP_IN}").read_bytes() == named
