"""A wall that is silently absent: podman drops a hook without a word, and the worker must still never run.

A stand-in for podman does to the real command what a bench might; the control is the same stand-in that
changes nothing.
"""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.bench.cards import BUSYBOX, Run, card, is_old

WORKER = ["--", "sh", "-c", "echo ran; touch /tmp/ran"]
STAND_IN = """\
#!/usr/bin/python3
import os, shutil, sys
argv = sys.argv
{change}
os.execv("/usr/bin/podman", ["podman", *argv[1:]])
"""
OURS = 'next(i for i, w in enumerate(argv) if w.startswith("--hooks-dir=") and "card-run" in w)'
COPY = f"""
i = {OURS}
folder = "{{folder}}/hooks.d"
shutil.rmtree(folder, ignore_errors=True)
shutil.copytree(argv[i].split("=", 1)[1], folder)
argv[i] = "--hooks-dir=" + folder
path = folder + "/50-card-run-prestart.json"
"""
SABOTAGE = {
    "hooks directory missing": f'argv[{OURS}] = "--hooks-dir=/nonexistent"',
    "hook file missing": COPY + "os.unlink(path)",
    "hook file with a wrong suffix": COPY + 'os.rename(path, path + ".off")',
    "hook program missing": COPY + 'text = open(path).read().replace("/bin/sh", "/nonexistent/sh")\n'
    'assert "/nonexistent" in text\nopen(path, "w").write(text)',
    "annotation not passed": 'argv = [w for w in argv if not w.startswith("--annotation=org.card-run.run=")]',
}


def stand_in(folder: Path, change: str) -> dict[str, str]:
    """Make a podman that changes its command; return the environment for it."""
    program = folder / "bin/podman"
    program.parent.mkdir(exist_ok=True)
    program.write_text(STAND_IN.format(change=change.replace("{folder}", str(folder))))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "CARD_RUN_PODMAN": str(program)}


def never_ran(done: Run) -> None:
    """Assert the three things that a refusal is: status, message, and no trace of the worker."""
    assert done.status == 125
    assert done.reasons
    assert done.out == ""


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", SABOTAGE)
def test_hook_silently_absent(name: str, tmp_path: Path) -> None:
    """The worker's first instruction never runs, exit 125, and the reason says that no proof was found."""
    done = card(*WORKER, env=stand_in(tmp_path, SABOTAGE[name]))
    never_ran(done)
    assert done.reasons == ["no-proof"]


def test_control_of_the_stand_in(tmp_path: Path) -> None:
    """The same stand-in, with the same copy of the hooks directory but nothing broken, runs the worker."""
    for change in ("pass", COPY):
        done = card(*WORKER, env=stand_in(tmp_path, change))
        assert (done.status, done.out) == (0, "ran\n"), done.err


def test_hook_that_fails(tmp_path: Path) -> None:
    """A plan that is not this start's makes the hook refuse, and its reason is the one that is told."""
    change = (
        'i = next(i for i, w in enumerate(argv) if w.startswith("--annotation=org.card-run.launch="))\n'
        'argv[i] = "--annotation=org.card-run.launch=" + "0" * 64'
    )
    done = card(*WORKER, env=stand_in(tmp_path, change))
    never_ran(done)
    assert done.reasons == ["plan-mismatch"]


BUNDLE = {
    "--cap-drop=all": "capabilities",
    "--security-opt=no-new-privileges": "no_new_privs",
    "--read-only": "root file system is writable",
    "--mount=type=tmpfs,destination=/tmp": "nothing is mounted at /tmp",
}


@pytest.mark.parametrize("option", BUNDLE)
def test_an_option_that_podman_ignores(option: str, tmp_path: Path) -> None:
    """What podman made of the command is read back: an option that took no effect is a refusal that names it."""
    change = f"argv = [w for w in argv if not w == {option!r} and not w.startswith({option!r} + ',')]"
    done = card(*WORKER, env=stand_in(tmp_path, change))
    never_ran(done)
    assert set(done.reasons) == {"bundle-differs"}
    assert BUNDLE[option] in done.err


ADDED = {
    "--volume=/etc:/bench": "/etc is mounted at /bench",
    "--cgroupns=host": "the cgroup namespace is the bench's",
    "--cap-add=NET_ADMIN": "NET_ADMIN",
    "--security-opt=seccomp=unconfined": "seccomp",
    "--sysctl=net.ipv4.ip_forward=1": "sysctl net.ipv4.ip_forward",
}


@pytest.mark.parametrize("option", ADDED)
def test_an_option_that_something_adds(option: str, tmp_path: Path) -> None:
    """What a containers.conf or a wrapper adds is a refusal that names it."""
    change = f"i = argv.index('--rm')\nargv[i:i] = [{option!r}]"
    if "seccomp" in option:
        change = f"argv = [{option!r} if w.startswith('--security-opt=seccomp=') else w for w in argv]"
    if "cgroupns" in option:
        change = f"argv = [{option!r} if w == '--cgroupns=private' else w for w in argv]"
    done = card(*WORKER, env=stand_in(tmp_path, change))
    never_ran(done)
    assert done.reasons == ["bundle-differs"]
    assert ADDED[option] in done.err


def test_users_containers_conf_changes_nothing(tmp_path: Path) -> None:
    """A containers.conf that would open every wall is overruled, and the card runs as if it were not there.

    Debian 12's podman has nothing that is laid over it: there the audit of the bundle refuses.
    """
    conf = tmp_path / "containers.conf"
    conf.write_text(
        "[containers]\n"
        'default_capabilities = ["NET_ADMIN", "SYS_ADMIN"]\nvolumes = ["/etc:/bench"]\nenv = ["LEAK=1"]\n'
        'netns = "host"\npidns = "host"\nipcns = "host"\nutsns = "host"\nuserns = "host"\ncgroupns = "host"\n'
        'seccomp_profile = "unconfined"\nhttp_proxy = true\nenv_host = true\ndevices = ["/dev/fuse"]\n'
        'annotations = ["org.card-run.run=other"]\n'
        f'[engine]\nhooks_dir = ["{tmp_path}"]\n'
    )
    done = card(
        *("--", "sh", "-c", "env; ls /bench; ls /dev; readlink /proc/1/ns/pid"),
        env={**os.environ, "CONTAINERS_CONF": str(conf), "SECRET": "x"},
    )
    if is_old():
        assert (done.status, set(done.reasons), done.out) == (125, {"bundle-differs"}, "")
        return
    assert "SANDBOX OK" in done.err
    assert "LEAK" not in done.out
    assert "SECRET" not in done.out
    assert "fuse" not in done.out.split()
    assert "level=full" in done.err


ZONE = ("--image", BUSYBOX, "--", "sh", "-c", "ls /etc/localtime; date +%Z")


def test_a_time_zone_is_a_cards_own_to_ask_for(tmp_path: Path) -> None:
    """`--tz` works on an image without time zones, and a containers.conf's does not reach the card."""
    if is_old():  # that podman takes it from the bench, which has none
        asked = card("--podman-arg=--tz=Asia/Tokyo", *ZONE)
        assert (asked.status, asked.reasons) == (125, ["podman-failed"])
        assert "stat /usr/share/zoneinfo/Asia/Tokyo" in asked.err
        return
    asked = card("--podman-arg=--tz=Asia/Tokyo", *ZONE)
    assert (asked.status, asked.out) == (0, "/etc/localtime\nJST\n"), asked.err
    conf = tmp_path / "containers.conf"
    conf.write_text('[containers]\ntz = "Asia/Tokyo"\n')
    given = card(*ZONE, env={**os.environ, "CONTAINERS_CONF": str(conf)})
    assert given.out == "UTC\n", given.err


FLUSH = ["/usr/bin/python3", "-c"]
FLUSH_PROGRAM = (
    "import json,subprocess,sys\n"
    "pid=str(json.load(sys.stdin)['pid'])\n"
    "subprocess.run(['/usr/bin/nsenter','-t',pid,'-n','/usr/sbin/nft','flush','ruleset'],check=True)\n"
)


def flushing_hooks(tmp_path: Path, *, flush: bool) -> str:
    """Write a site hook that comes after ours and flushes the table (or does nothing); return the stand-in's change."""
    folder = tmp_path / "site"
    folder.mkdir()
    program = FLUSH_PROGRAM if flush else "pass"
    hook = {
        "version": "1.0.0",
        "hook": {"path": FLUSH[0], "args": [*FLUSH, program], "env": ["PATH=/usr/sbin:/usr/bin"], "timeout": 10},
        "when": {"always": True},
        "stages": ["createRuntime"],
    }
    (folder / "90-site.json").write_text(json.dumps(hook))
    return f"i = {OURS}\nargv[i + 1 : i + 1] = ['--hooks-dir={folder}']"


@pytest.mark.parametrize("user", ["keep-id", "root"])
@pytest.mark.usefixtures("nothing_left")
def test_table_flushed_after_the_hook(user: str, tmp_path: Path) -> None:
    """A table that is gone before stage 2 is felt from inside, and refused."""
    done = card("--user", user, *WORKER, env=stand_in(tmp_path, flushing_hooks(tmp_path, flush=True)))
    never_ran(done)
    assert done.reasons == ["egress-open"]


def test_control_of_the_flush(tmp_path: Path) -> None:
    """The same site hook that flushes nothing lets the card run."""
    done = card(*WORKER, env=stand_in(tmp_path, flushing_hooks(tmp_path, flush=False)))
    assert (done.status, done.out) == (0, "ran\n"), done.err


def test_podman_start_of_an_earlier_cards_container(tmp_path: Path) -> None:
    """A container made by a card's own command and started by hand, without the hooks, refuses; 125 and the reason."""
    change = (
        'if "run" in argv:\n'
        '    words = [w for w in argv if w not in ("--rm", "--detach=false")]\n'
        '    words[words.index("run")] = "create"\n'
        '    words = [w for w in words if not w.startswith(("--preserve-fds", "--cidfile"))]\n'
        '    os.spawnv(os.P_WAIT, "/usr/bin/podman", ["podman", *words[1:]])\n'
    )
    environment = stand_in(tmp_path, change)
    first = card("--run", "early", *WORKER, env=environment)
    assert first.status == 125  # the name is taken: this run only made the container
    name = "card-early"
    directory = Path(os.environ.get("XDG_RUNTIME_DIR", "/run")) / "card-run/early"
    (directory / "card").mkdir(parents=True)
    for mounted in ("hosts", "resolv.conf"):
        (directory / mounted).touch()
    try:
        done = subprocess.run(["podman", "start", "--attach", name], capture_output=True, text=True, check=False)
    finally:
        subprocess.run(["podman", "rm", "--force", name], capture_output=True, check=True)
        subprocess.run(["rm", "-rf", str(directory)], check=True)
    assert done.returncode == 125
    assert "SANDBOX REFUSED reason=no-launcher" in done.stderr
    assert "ran" not in done.stdout
