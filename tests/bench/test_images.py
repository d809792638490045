"""Any image: what it is made of does not matter to the walls, and what it says about itself cannot weaken them.

The images are built here from scratch, without a network. What of an image would run by itself says `hostile`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bench.cards import BUSYBOX, card, plain, run
from tests.bench.toolbox import TOOLS, needs_tools

UID, MACHINE = str(os.getuid()), os.uname().machine
SHELL = """
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
ENV PATH=/bin
RUN ["/bin/sh", "-c", "printf '#!/bin/sh\\\\necho hostile\\\\n' > /trap; chmod 755 /trap"]
"""
EVIL = """
#include <unistd.h>
__attribute__((constructor)) static void start(void) { write(1, "hostile\\n", 8); }
unsigned int la_version(unsigned int version) { start(); return version; }
"""
HELLO = '#include <stdio.h>\nint main(void) { printf("hello from %s\\n", WHERE); return 0; }\n'


def built(folder: Path, containerfile: str, *options: str) -> str:
    """Build an image from a folder and return its name."""
    name = f"localhost/tests/{folder.name.lower().replace('_', '-')}:latest"
    (folder / "Containerfile").write_text(containerfile)
    argv = ["podman", "build", "--quiet", "--pull=never", "--network=none", *options, f"--tag={name}", str(folder)]
    done = run(argv)
    assert done.status == 0, done.err
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder to build an image from, with busybox in it."""
    shutil.copy("/usr/bin/busybox", tmp_path)
    return tmp_path


def compiled(folder: Path, *words: str) -> None:
    """Run a compiler of the tools image in a folder."""
    argv = ["podman", "run", "--rm", "--pull=never", "--userns=keep-id", "--network=none", f"--volume={folder}:/w"]
    done = run([*argv, "--workdir=/w", TOOLS, *words])
    assert done.status == 0, done.err


def with_libraries(folder: Path, program: str) -> None:
    """Copy a program of the bench's and the libraries it needs to `root` in a folder, and nothing else."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout.split()
    libraries = [word for word in listed if word.startswith("/")]
    # each where the program looks and, the loader too, where a library of the image's would look (LD_AUDIT)
    copies = [(path, path[1:]) for path in (program, *libraries)]
    copies += [(path, f"lib/{MACHINE}-linux-gnu/{os.path.basename(path)}") for path in libraries]
    for path, place in copies:
        target = folder / "root" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)


def one_static_binary(folder: Path) -> tuple[str, list[str], str]:
    """Build an image of nothing but a single static program."""
    return built(folder, "FROM scratch\nCOPY busybox /busybox\n"), ["/busybox", "id", "-u"], f"{UID}\n"


def distroless(folder: Path) -> tuple[str, list[str], str]:
    """Build one of a program and its libraries, with no shell and no Python."""
    with_libraries(folder, "/usr/bin/id")
    return built(folder, "FROM scratch\nCOPY root/ /\n"), ["/usr/bin/id", "-u"], f"{UID}\n"


def musl(folder: Path) -> tuple[str, list[str], str]:
    """Build one of a program and musl's loader, with nothing of glibc."""
    (folder / "hello.c").write_text(HELLO)
    compiled(folder, "musl-gcc", '-DWHERE="musl"', "-o", "hello", "hello.c")
    compiled(folder, "cp", f"/lib/{MACHINE}-linux-musl/libc.so", "ld-musl")
    text = f"FROM scratch\nCOPY hello /hello\nCOPY ld-musl /lib/ld-musl-{MACHINE}.so.1\n"
    return built(folder, text), ["/hello"], "hello from musl\n"


def static_musl(folder: Path) -> tuple[str, list[str], str]:
    """Build one of a single program with musl in it."""
    (folder / "hello.c").write_text(HELLO)
    compiled(folder, "musl-gcc", "-static", '-DWHERE="static"', "-o", "hello", "hello.c")
    return built(folder, "FROM scratch\nCOPY hello /hello\n"), ["/hello"], "hello from static\n"


def imported(folder: Path) -> tuple[str, list[str], str]:
    """Import a tar, which has no configuration at all, not even PATH."""
    run(["tar", "-C", str(folder), "-cf", str(folder / "image.tar"), "busybox"])
    name = "localhost/tests/imported:latest"
    assert run(["podman", "import", "--quiet", str(folder / "image.tar"), name]).status == 0
    return name, ["/busybox", "echo", "fine"], "fine\n"


@pytest.mark.parametrize(
    "kind",
    [
        one_static_binary,
        distroless,
        imported,
        pytest.param(musl, marks=needs_tools),
        pytest.param(static_musl, marks=needs_tools),
    ],
)
@pytest.mark.parametrize("user", ["keep-id", "root"])
def test_kinds(kind: Callable[[Path], tuple[str, list[str], str]], user: str, folder: Path) -> None:
    """The worker runs behind every wall, whatever the image has or lacks."""
    image, worker, says = kind(folder)
    done = card("--image", image, "--user", user, "--", *worker)
    assert (done.status, done.out) == (0, says if user == "keep-id" else says.replace(UID, "0")), done.err
    assert "level=full" in done.err


HARMLESS = {
    "ENTRYPOINT": 'ENTRYPOINT ["/trap"]',
    "CMD": 'CMD ["/trap"]',
    "USER 0": "USER 0",
    "USER nobody": "USER nobody",
    "USER by number": "USER 12345:54321",
    "WORKDIR": "WORKDIR /nonexistent",
    "PATH": "COPY busybox /first/true\nENV PATH=.:/first:/bin",
    "ENV of loaders": "ENV LD_PRELOAD=/trap LD_AUDIT=/trap LD_LIBRARY_PATH=/ LD_DEBUG=all LD_SHOW_AUXV=1",
    "ENV of Python": "ENV PYTHONHOME=/ PYTHONPATH=/ PYTHONSTARTUP=/trap PYTHONINSPECT=1 PYTHONVERBOSE=2",
    "HEALTHCHECK": "HEALTHCHECK --interval=1s CMD /trap",
    "VOLUME": 'VOLUME ["/data", "/run/card", "/bin"]',
    "STOPSIGNAL": "STOPSIGNAL SIGKILL",
    "ONBUILD": 'ONBUILD RUN ["/trap"]',
    "EXPOSE": "EXPOSE 443 53/udp",
    "LABEL": "LABEL run.oci.handler=krun io.podman.annotations.privileged=TRUE org.card-run.run=other",
    "python3": "COPY busybox /bin/python3\nCOPY busybox /usr/bin/python3",
    "a loader and a libc": (
        "COPY busybox /lib64/ld-linux-x86-64.so.2\nCOPY busybox /lib/ld-linux-aarch64.so.1\n"
        "COPY busybox /lib/x86_64-linux-gnu/libc.so.6\nCOPY busybox /lib/libc.so.6"
    ),
    "the loader's files": "COPY Containerfile /etc/ld.so.cache\nCOPY Containerfile /etc/ld.so.preload",
    "modules": "COPY Containerfile /ctypes.py\nCOPY Containerfile /os.py\nCOPY Containerfile /encodings/__init__.py",
    "many entries": 'RUN ["/bin/sh", "-c", "i=0; while [ $i -lt 2000 ]; do : > /f$i; i=$((i+1)); done"]',
    "odd names": 'RUN ["/bin/sh", "-c", "mkdir -m 0 \'/a b\' /closed; touch $(printf \'/x\\\\377y\')"]',
    "/run as a link": 'RUN ["/bin/sh", "-c", "mkdir /other; ln -s /other /run/card"]',
    "/run/card-runtime as a link": 'RUN ["/bin/sh", "-c", "mkdir /other; ln -s /other /run/card-runtime"]',
    "/etc/resolv.conf as a link": 'RUN ["/bin/sh", "-c", "rm -f /etc/resolv.conf || :; ln -sf /nowhere /etc/mtab"]',
    "device nodes by name": 'RUN ["/bin/sh", "-c", "mkdir -p /dev; ls /dev > /made"]',
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_what_an_image_says_changes_nothing(name: str, folder: Path) -> None:
    """The worker, and it alone, runs: as the caller, in the card's own directory, behind every wall."""
    image = built(folder, SHELL + HARMLESS[name], "--format=docker")  # the one that has all of these
    done = card("--image", image, "--", "/bin/sh", "-c", "id -u; pwd; echo $HOME")
    assert (done.status, done.out) == (0, f"{UID}\n/card\n/card\n"), done.err
    assert "level=full" in done.err
    assert "hostile" not in done.err


@pytest.mark.parametrize("name", ["ENTRYPOINT", "CMD"])
def test_the_trap_works(name: str, folder: Path) -> None:
    """The control: in a plain container the image's own command runs."""
    assert plain(image=built(folder, SHELL + HARMLESS[name])).out == "hostile\n"


REFUSED = {
    "/run/card is a file": ('RUN ["/bin/sh", "-c", ": > /run/card"]', "podman-failed"),
    "/run/card leads to a mount": ('RUN ["/bin/sh", "-c", "ln -s ../../../tmp /run/card"]', "landlock-open"),
    "/run/card-runtime is a file": ('RUN ["/bin/sh", "-c", ": > /run/card-runtime"]', "podman-failed"),
    "/card is a file": ('RUN ["/bin/sh", "-c", ": > /card"]', "podman-failed"),
    "/card is a link": ('RUN ["/bin/sh", "-c", "ln -s /bin /card"]', "bundle-differs"),
    "/tmp is a file": ('RUN ["/bin/sh", "-c", ": > /tmp"]', "podman-failed"),
    "/tmp is a link": ('RUN ["/bin/sh", "-c", "ln -s /etc /tmp"]', "bundle-differs"),
}


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mounted_over_is_refused(name: str, folder: Path) -> None:
    """An image that puts something else where the card's own must be is refused, and nothing of it runs."""
    line, reason = REFUSED[name]
    done = card("--image", built(folder, SHELL + line + '\nCMD ["/trap"]'), "--", "/bin/sh", "-c", "echo ran")
    assert (done.status, done.out) == (125, "")
    assert set(done.reasons) == {reason}, done.err


LOADERS = {
    "LD_PRELOAD": "ENV LD_PRELOAD=/evil.so",
    "LD_AUDIT": "ENV LD_AUDIT=/evil.so",
    "/etc/ld.so.preload": "COPY preload /etc/ld.so.preload",
}


@needs_tools
@pytest.mark.parametrize("name", LOADERS)
def test_no_library_of_the_image_gets_into_stage_2(name: str, folder: Path) -> None:
    """What every dynamic program of a plain container loads is not in stage 2.

    The worker has none of the variables either; the file is the image's business with its own programs.
    """
    with_libraries(folder, "/usr/bin/id")
    (folder / "evil.c").write_text(EVIL)
    (folder / "preload").write_text("/evil.so\n")
    compiled(folder, "cc", "-shared", "-fPIC", "-o", "evil.so", "evil.c")
    text = f"FROM scratch\nCOPY root/ /\nCOPY evil.so /evil.so\nCOPY busybox /busybox\n{LOADERS[name]}\n"
    image = built(folder, text)
    assert set(plain("/usr/bin/id", "-u", image=image).out.split()) == {"hostile", UID}
    static = card("--image", image, "--", "/busybox", "echo", "fine")
    assert (static.status, static.out) == (0, "fine\n"), static.err
    dynamic = card("-q", "--image", image, "--", "/usr/bin/id", "-u")
    own = "hostile\n" if name.startswith("/") else ""
    assert (dynamic.status, dynamic.out) == (0, f"{own}{UID}\n"), dynamic.err


ANNOTATIONS = {
    "run.oci.hooks.stdout": "/tmp/written-by-an-image",
    "run.oci.hooks.stderr": "/tmp/written-by-an-image",
    "run.oci.seccomp_bpf_data": "BgAAAAAA/38=",  # one instruction: allow
    "run.oci.keep_original_groups": "1",
    "org.card-run.directory": "/tmp",
    "org.card-run.run": "other",
}


def test_annotations_of_an_image_are_not_the_containers(folder: Path) -> None:
    """What crun would obey as an annotation (crun(1)) is not taken from an image; the control passes it by hand."""
    written = Path(ANNOTATIONS["run.oci.hooks.stdout"])
    image = built(
        folder, SHELL + "LABEL annotated=yes", *(f"--annotation={name}={value}" for name, value in ANNOTATIONS.items())
    )
    read = run(["podman", "image", "inspect", "--format", "{{json .Annotations}}", image]).out
    assert all(name in read for name in ANNOTATIONS)
    done = card("--image", image, "--", "grep", "Seccomp", "/proc/self/status")
    assert (done.status, done.out.split()) == (0, ["Seccomp:", "2", "Seccomp_filters:", "2"])
    assert not written.exists()
    hooks = folder / "hooks.d"
    hooks.mkdir()
    hook = '{"path": "/bin/sh", "args": ["sh", "-c", "echo x"]}'
    content = f'{{"version": "1.0.0", "hook": {hook}, "when": {{"always": true}}, "stages": ["createRuntime"]}}'
    (hooks / "hook.json").write_text(content)
    argv = ["podman", f"--hooks-dir={hooks}", "run", "--rm", "--network=none"]
    argv += [f"--annotation=run.oci.hooks.stdout={written}", BUSYBOX, "true"]
    assert run(argv).status == 0
    assert written.exists()
    written.unlink()


def test_stopsignal_of_an_image_is_not_the_workers(folder: Path) -> None:
    """A worker is asked to end with SIGTERM, whatever the image would have it killed with."""
    image = built(folder, f"{SHELL}STOPSIGNAL SIGKILL\n")
    script = "trap 'echo asked; exit 7' TERM; echo started; while :; do read -r line; done"
    argv = ["card-run", "-q", "-i", "--image", image, "--", "/bin/sh", "-c", script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "started\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "asked\n"
        assert worker.wait(timeout=20) == 7


def opening_a_pipe() -> bool:
    """Return whether some thread waits for the other end of a pipe that it opens (fifo(7))."""
    for path in Path("/proc").glob("[0-9]*/task/[0-9]*/wchan"):
        with contextlib.suppress(OSError):
            if path.read_text() == "wait_for_partner":
                return True
    return False


@pytest.mark.usefixtures("nothing_left")
def test_an_image_that_hangs_podman_can_be_ended(folder: Path) -> None:
    """A pipe for /etc/passwd hangs podman itself, deaf to TERM: card-run ends it, and the worker never ran."""
    name = built(folder, SHELL + 'RUN ["/bin/sh", "-c", "mkdir -p /etc; rm -f /etc/passwd; mkfifo /etc/passwd"]\n')
    words = ["card-run", "--run", "hung", "--image", name, "--", "echo", "ran"]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as hung:
        while not opening_a_pipe():
            assert hung.poll() is None
        hung.send_signal(signal.SIGTERM)
        out, err = hung.communicate(timeout=60)
    assert (hung.returncode, out) == (128 + signal.SIGTERM, "")
    assert "reason=interrupted SIGTERM" in err
