"""Stage 2 whole, from its interpreter's first instruction to the worker's, in a cage on the real kernel."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher import runtime
from launcher.runtime import Runtime
from launcher.seccomp import profile
from tests.kernel.cage import start
from tests.kernel.card import BASE_PROFILE, NONCE, Card, Outcome, receive, send

ESCAPES = """
try() { "$@" >/dev/null 2>/tmp/err && echo "$1 worked" || echo denied; }
try cat /run/card/proof
try cat /leak/proof
try cat /run/card-runtime/filter.bpf
try touch /new
try touch /usr/new
try unshare -r true
try cat /mnt/work/link
try cp /bin/true /mnt/noexec/x
try /mnt/noexec/program
cat /mnt/noexec/program >/dev/null && echo read
ls / >/dev/null && echo listed
cp /bin/true ./t && ./t && mkdir -p a b && mv t a && mv a b && echo WORKED > f
echo gone >/dev/null
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """Return a runtime of this Python."""
    base = tmp_path_factory.mktemp("profile") / "seccomp.json"
    base.write_text(BASE_PROFILE)
    cache = tmp_path_factory.mktemp("cache")
    cache.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profile, "BASES", (str(base),))
        yield runtime.ensure(str(cache))


def refused(outcome: Outcome, reason: str) -> None:
    """Assert a refusal three ways: the status, the reason, and that nothing of the worker was printed."""
    assert outcome.status == 125, outcome
    assert outcome.reasons == [reason], outcome
    assert "WORKER" not in outcome.stdout


def worker(built: Runtime, script: str = "echo WORKER", **more: object) -> Card:
    """Return a card whose worker is a shell script."""
    return Card(built, ["sh", "-c", script], **more)  # type: ignore[arg-type]


def test_an_empty_root_is_enough(built: Runtime) -> None:
    """With no file but the runtime every wall is built and reported; only the worker is not there."""
    outcome = Card(built, ["worker"], system=False).run()
    assert outcome.report["status"] == ["ok"]
    assert (outcome.status, outcome.stderr) == (127, "card-run: worker: not found\n")


def test_the_report_is_measured(built: Runtime) -> None:
    """Every fact the launcher judges is there, as this cage is."""
    report = {key: values[-1] for key, values in worker(built).run().report.items()}
    expected = {
        "status": "ok",
        "lifeline": "armed",
        "proof": "ok",
        "egress": "ok",
        "env": "scrubbed",
        "backend": "landlock",
        "caps": "none",
        "no_new_privs": "1",
        "mounts": "ok",
        "user_namespace": "own",
        "read_outside": "EACCES",
        "write_outside": "EACCES",
        "create_outside": "EROFS",
        "seccomp_mode": "2",
        "seccomp_filters": "2",
        "seccomp_denied": "EPERM",
        "seccomp": str(built.filter_rules),
        "digest": "d",
        "table": "t",
        "egress_probe4": "ENETUNREACH,ENETUNREACH",
    }
    assert {key: report.get(key) for key in expected} == expected
    assert int(report["used"]) == min(int(report["abi"]), 11)
    assert report["times_us"].count(":") == 5


@pytest.mark.parametrize("status", [0, 1, 7, 125, 126, 127])
def test_the_worker_s_status_is_its_own(built: Runtime, status: int) -> None:
    """Whatever the worker ends with."""
    outcome = worker(built, f"echo WORKER; exit {status}").run()
    assert (outcome.status, outcome.stdout) == (status, "WORKER\n")


def test_what_cannot_be_executed(built: Runtime) -> None:
    """A directory is 126, a missing program 127, each with a word on stderr."""
    for argv, status in (["/usr"], 126), (["/usr/bin/nothing"], 127), (["nothing"], 127), ([""], 127):
        outcome = Card(built, argv).run()
        assert outcome.status == status
        assert outcome.stderr.startswith(f"card-run: {argv[0]}: ")


def test_the_worker_starts_clean(built: Runtime) -> None:
    """Signals at their defaults, none blocked, no capability, standard descriptors only, umask and directory set."""
    script = (
        "grep -E '^(Sig(Blk|Ign)|Cap...|NoNewPrivs|Seccomp_filters|Umask)' /proc/self/status; ls /proc/self/fd; pwd"
    )
    lines = Card(built, ["bash", "-c", script], conf=[("cwd", "/usr")]).run().stdout.split()
    fields, rest = lines[:-5], lines[-5:]
    zero = "0" * 16
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    # Signal 32 is glibc's own (SIGCANCEL): its posix_spawn leaves it ignored, and only libc can set it again.
    found["SigIgn:"] = f"{int(found['SigIgn:'], 16) & ~(1 << 31):016x}"
    assert found == {
        **dict.fromkeys(("SigBlk:", "SigIgn:"), zero),
        **dict.fromkeys(("CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"), zero),
        "NoNewPrivs:": "1",
        "Seccomp_filters:": "2",
        "Umask:": "0022",
    }
    assert rest == ["0", "1", "2", "3", "/usr"], "3 is the listing's own"


def test_no_descriptor_of_the_caller_s_is_left(built: Runtime, tmp_path: Path) -> None:
    """Descriptors that the caller had open on a secret are closed, high ones too."""
    (tmp_path / "secret").write_text("SECRET")
    held = {str(number): str(tmp_path / "secret") for number in (5, 17, 900)}
    script = "for n in 3 4 5 17 900; do cat <&$n; done; cat /proc/self/fd/900; echo WORKER"
    outcome = Card(built, ["bash", "-c", script], changes={"held": held}).run()
    assert (outcome.stdout, outcome.status) == ("WORKER\n", 0)
    assert outcome.stderr.count("Bad file descriptor") == 5


def test_the_worker_s_environment_is_what_was_sent(built: Runtime) -> None:
    """The container's, less what steers loaders, and the launcher's on top; nothing that Python adds by itself."""
    env = {"PATH": "/usr/bin", "IMAGE": "1", "PYTHONPATH": "/w", "BASH_ENV": "/w/x"}
    hello = [("nonce", NONCE), ("env", "SENT=a=b"), ("env", "IMAGE=2")]
    outcome = Card(built, ["env"], env=env, hello=hello).run()
    assert sorted(outcome.stdout.splitlines()) == ["IMAGE=2", "PATH=/usr/bin", "SENT=a=b"]


def test_escapes_fail_and_work_succeeds(built: Runtime, tmp_path: Path) -> None:
    """The workspace is writable; what was not named is neither readable nor writable, and noexec is not executable."""
    work, noexec = tmp_path / "work", tmp_path / "noexec"
    for place in (work, noexec):
        place.mkdir()
    (noexec / "program").write_text("#!/bin/sh\n")
    (noexec / "program").chmod(0o755)
    (work / "link").symlink_to("/run/card/stage2.conf")
    roots = [("write", "/mnt/work", work), ("noexec", "/mnt/noexec", noexec)]
    outcome = worker(built, ESCAPES, roots=roots, conf=[("cwd", "/mnt/work")]).run()
    assert outcome.stdout.split() == ["denied"] * 9 + ["read", "listed"]
    assert outcome.stderr == ""
    assert (work / "f").read_text() == "WORKED\n"


def test_hostile_modules_and_variables_do_not_reach_stage_2(built: Runtime, tmp_path: Path) -> None:
    """Modules in the workspace and the image, Python's variables and the image's preload file: stage 2 runs none."""
    evil = "import os; os.write(1, b'EVIL'); os._exit(0)"
    for name in ("ctypes", "os", "struct", "sitecustomize", "usercustomize", "encodings", "errno", "oci", "launcher"):
        (tmp_path / f"{name}.py").write_text(evil)
    env = {
        "PATH": "/usr/bin",
        "PYTHONPATH": "/mnt",
        "PYTHONSTARTUP": "/mnt/os.py",
        "PYTHONHOME": "/w",
        "PYTHONINSPECT": "1",
        "PYTHONPLATLIBDIR": "/w",
        "LANG": "xx_XX",
        "LC_ALL": "POSIX",
    }
    files = {"/etc/ld.so.preload": "/mnt/evil.so\n", "/etc/ld.so.cache": "rubbish", "/ctypes.py": evil}
    card = Card(
        built,
        ["env"],
        env=env,
        roots=[("write", "/mnt", tmp_path)],
        conf=[("cwd", "/mnt")],
        changes={"files": files},
    )
    outcome = card.run()
    assert outcome.report["status"] == ["ok"]
    assert sorted(outcome.stdout.splitlines()) == [
        "LANG=xx_XX",
        "LC_ALL=POSIX",
        "PATH=/usr/bin",
        "PYTHONPLATLIBDIR=/w",
    ]
    # the worker's own loader does read the image's preload file, which shows that it was there to be read
    assert "evil.so" in outcome.stderr


def test_a_preloaded_library_is_refused(built: Runtime) -> None:
    """An image's LD_PRELOAD that podman did not unset acts on stage 2's own loader."""
    refused(worker(built, env={"PATH": "/usr/bin", "LD_PRELOAD": "/usr/lib/none.so"}).run(), "loader-steered")


def test_no_proof_no_worker(built: Runtime) -> None:
    """Without the hook's proof nothing of the worker runs; with it, it does."""
    refused(worker(built, proof=False).run(), "no-proof")
    assert worker(built).run().stdout == "WORKER\n"


def test_a_proof_of_another_start(built: Runtime) -> None:
    """A nonce that is not this start's is refused, and so is none."""
    refused(worker(built, hello=[("nonce", "other")]).run(), "proof-mismatch")
    refused(worker(built, hello=[]).run(), "proof-mismatch")
    refused(worker(built, conf=[("run", "other")]).run(), "proof-mismatch")


def test_an_open_network_is_refused(built: Runtime) -> None:
    """Where the wall must answer and something else does, nothing runs."""
    refused(worker(built, conf=[("network", "1"), ("route4", "1")]).run(), "egress-open")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"drop_capabilities": False}, "capabilities-held"),
        ({"profile": "none"}, "profile-missing"),
        ({"read_only": False}, "mount-open"),
        ({"profile": str(errno.ENOSYS)}, "landlock-missing"),
        ({"profile": str(errno.EPERM)}, "landlock-blocked"),
        ({"profile": str(errno.EOPNOTSUPP)}, "landlock-disabled"),
    ],
)
def test_what_podman_did_otherwise_is_refused(built: Runtime, changes: dict[str, object], reason: str) -> None:
    """Capabilities left, no profile, a writable image, or a profile that hides Landlock."""
    refused(worker(built, changes=changes).run(), reason)


def test_a_control_that_fails_is_no_proof(built: Runtime) -> None:
    """Where the write that Landlock is to deny does not work without it either, that is what is said."""
    outcome = worker(built, changes={"proc_read_only": True}).run()
    refused(outcome, "stage2-failed")
    assert outcome.report["text"] == ["/proc/self/comm: Read-only file system"]


def test_privileges_that_could_be_gained(built: Runtime) -> None:
    """Without no_new_privs it is refused; the filter needs CAP_SYS_ADMIN to be loaded so, hence both reasons."""
    outcome = worker(built, changes={"no_new_privs": False, "drop_capabilities": False}).run()
    assert (outcome.status, outcome.reasons, outcome.stdout) == (125, ["no-new-privs-missing", "capabilities-held"], "")


@pytest.mark.parametrize(
    ("conf", "reason"),
    [
        ([("cwd", "/none")], "cwd-unusable"),
        ([("rlimit", "NOTHING:1:1")], "rlimit-unknown"),
        ([("rlimit", "NOFILE:99999999:99999999")], "rlimit-refused"),
        ([("read", "/none")], "mount-open"),
        ([("network", "host")], "conf-malformed"),
        ([("outside", "/tmp")], "landlock-open"),
    ],
)
def test_a_configuration_that_cannot_be_met(built: Runtime, conf: list[tuple[str, str]], reason: str) -> None:
    """Each is refused with its own reason; `outside` in a private root is the control of the write test."""
    refused(worker(built, conf=conf).run(), reason)


def test_a_root_that_is_mounted_otherwise_is_refused(built: Runtime, tmp_path: Path) -> None:
    """A noexec path whose mount would execute, and a read path whose mount could be written."""
    card = worker(built, roots=[("noexec", "/mnt", tmp_path)])
    assert card.run().status == 0
    card.roots = [("read", "/mnt", tmp_path)]
    assert card.run().status == 0
    card.conf = [("noexec", "/mnt")]
    refused(card.run(), "mount-open")
    card.conf, card.roots = [("read", "/mnt")], [("write", "/mnt", tmp_path)]
    refused(card.run(), "mount-open")


@pytest.mark.parametrize("go", [None, [("go", "0")], [("stop", "1")], []])
def test_without_leave_nothing_runs(built: Runtime, go: list[tuple[str, str]] | None) -> None:
    """Only the word `go` releases the worker; an end of file and any other word do not."""
    outcome = worker(built, go=go).run()
    assert outcome.report["status"] == ["ok"]
    assert (outcome.status, outcome.stdout) == (125, "")


def test_a_limit_is_set(built: Runtime) -> None:
    """What is asked for holds for the worker."""
    assert worker(built, "ulimit -Sn; ulimit -Hn", conf=[("rlimit", "NOFILE:77:99")]).run().stdout == "77\n99\n"


def test_nobody_waiting_is_said_on_stderr(built: Runtime, tmp_path: Path) -> None:
    """Started by hand, without a launcher's socket on descriptor 3, stage 2 refuses in words."""
    card = worker(built)
    card.write_conf(tmp_path)
    with (tmp_path / "file").open("w") as file:
        for fd in (None, file.fileno()):  # and no lifeline either
            process = start(card.spec(tmp_path), pass_fd=fd)
            stdout, stderr = process.communicate(timeout=60)
            assert (process.returncode, stdout) == (125, b"")
            assert stderr.startswith(b"SANDBOX REFUSED reason=no-launcher ")


def test_a_launcher_that_dies_ends_the_card(built: Runtime, tmp_path: Path) -> None:
    """An end of file instead of the first frame: nothing runs."""
    card = worker(built)
    card.write_conf(tmp_path)
    ours, theirs = socket.socketpair()
    held, lifeline = socket.socketpair()
    process = start(card.spec(tmp_path), pass_fd=theirs.fileno(), lifeline=lifeline.fileno())
    theirs.close()
    ours.close()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (125, b"")
    assert b"reason=launcher-lost" in stderr
    held.close()
    lifeline.close()


@pytest.mark.parametrize("what", ["none", "file", "ended"])
def test_without_a_lifeline_nothing_runs(built: Runtime, tmp_path: Path, what: str) -> None:
    """Descriptor 4 closed, no socket, or one whose other end is gone already: refused, and the launcher is told."""
    card = worker(built)
    card.write_conf(tmp_path)
    ours, theirs = socket.socketpair()
    held, lifeline = socket.socketpair()
    held.close()
    with (tmp_path / "file").open("w") as file, lifeline, ours:
        fd = {"none": None, "file": file.fileno(), "ended": lifeline.fileno()}[what]
        process = start(card.spec(tmp_path), pass_fd=theirs.fileno(), lifeline=fd)
        theirs.close()
        send(ours, card.hello)
        report = receive(ours)
        assert report["status"] == ["refused"]
        assert report["reason"] == ["launcher-lost" if what == "ended" else "no-lifeline"]
        stdout, _ = process.communicate(timeout=60)
        assert (process.returncode, stdout) == (125, b"")


def test_the_runtime_runs_nothing_of_this_machine(built: Runtime) -> None:
    """No file of the runtime names the place it was built from."""
    for folder, _, names in os.walk(built.card_dir):
        for name in names:
            if name.endswith(".pyc"):
                assert os.fsencode(runtime.package_root()) not in (Path(folder) / name).read_bytes()
