"""Ways out that programs know, tried in a card: each is denied with its own errno.

The control is a container of the same image with every capability and no filter, where each works.
"""

import json

import pytest

from tests.bench.cards import card, run
from tests.bench.toolbox import TOOLS, needs_tools

pytestmark = needs_tools
CALLS = r"""
import ctypes, errno, json, os, signal

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
FDCWD, SIZE = -100, 16

class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_char * 128)]

class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result

def call(number, *arguments):
    return checked(libc.syscall(ctypes.c_long(number), *arguments))

handle, where = Handle(bytes=128), ctypes.c_int()
os.makedirs("/tmp/place", exist_ok=True)
secret = ctypes.create_string_buffer(b"secret")

def name_to_handle_at():
    checked(libc.name_to_handle_at(FDCWD, b"/tmp/place", ctypes.byref(handle), ctypes.byref(where), 0))

def open_by_handle_at():
    handle.bytes = handle.bytes if handle.kind else 8
    os.close(checked(libc.open_by_handle_at(os.open("/tmp", os.O_RDONLY), ctypes.byref(handle), os.O_DIRECTORY)))

def mount():
    checked(libc.mount(b"none", b"/tmp/place", b"tmpfs", 0, None))

def umount():
    checked(libc.umount2(b"/tmp/place", 2))

def fsopen():
    os.close(call(430, b"tmpfs", 0))

def open_tree():
    os.close(call(428, FDCWD, b"/tmp", 1))

def chroot():
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.chroot(b"/tmp") == 0 else ctypes.get_errno())
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise OSError(status, "")

def with_child(action):
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        action(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

def ptrace():
    with_child(lambda pid: checked(libc.ptrace(16, pid, 0, 0)))

def seize():
    with_child(lambda pid: checked(libc.ptrace(0x4206, pid, 0, 0)))

def process_vm(function):
    def action(pid):
        here = ctypes.create_string_buffer(6)
        mine = Piece(ctypes.addressof(here), 6)
        theirs = Piece(ctypes.addressof(secret), 6)
        checked(function(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0))
    with_child(action)

def process_vm_readv():
    process_vm(libc.process_vm_readv)

def process_vm_writev():
    process_vm(libc.process_vm_writev)

def pidfd_getfd():
    with_child(lambda pid: os.close(call(438, os.pidfd_open(pid), 1, 0)))

def memory_of_the_first_process():
    os.close(os.open("/proc/1/mem", os.O_RDONLY))

def root_of_the_first_process():
    os.listdir("/proc/1/root")

def closed_descriptor():
    os.close(os.open("/proc/self/fd/3", os.O_RDONLY))

TRIES = (closed_descriptor, name_to_handle_at, open_by_handle_at, mount, umount, fsopen, open_tree, chroot, ptrace,
         seize, process_vm_readv, process_vm_writev, pidfd_getfd, memory_of_the_first_process,
         root_of_the_first_process)
found = {}
for attempt in TRIES:
    try:
        attempt()
        found[attempt.__name__] = "ok"
    except OSError as error:
        found[attempt.__name__] = errno.errorcode.get(error.errno, str(error.errno))
print(json.dumps(found))
"""
# Denied by the filter, by Landlock's ptrace rule, or because stage 2 left no descriptor open.
DENIED_CALLS = {
    **dict.fromkeys(("name_to_handle_at", "open_by_handle_at"), "EPERM"),
    **dict.fromkeys(("mount", "umount", "fsopen", "open_tree", "chroot"), "EPERM"),
    **dict.fromkeys(("ptrace", "seize", "process_vm_readv", "process_vm_writev", "pidfd_getfd"), "EPERM"),
    **dict.fromkeys(("memory_of_the_first_process", "root_of_the_first_process"), "EACCES"),
    "closed_descriptor": "ENOENT",
}
BWRAP_SAYS = (
    "bwrap: No permissions to create a new namespace, likely because the kernel does not allow non-privileged user"
    " namespaces. See <https://deb.li/bubblewrap> or <file:///usr/share/doc/bubblewrap/README.Debian.gz>."
)
DENIED_TOOLS = {
    "unshare -r true": {"unshare: unshare failed: Operation not permitted"},
    "unshare -rm true": {"unshare: unshare failed: Operation not permitted"},
    "unshare -n true": {"unshare: unshare failed: Operation not permitted"},
    "nsenter -t 1 -n true": {"nsenter: reassociate to namespaces failed: Operation not permitted"},
    "nsenter --net=/proc/self/ns/net true": {
        "nsenter: reassociate to namespace 'ns/net' failed: Operation not permitted",
    },
    "bwrap --ro-bind / / true": {
        "bwrap: Creating new namespace failed: Operation not permitted",
        BWRAP_SAYS,
    },
    "chroot / true": {"chroot: cannot change root directory to '/': Operation not permitted"},
}


def unwalled(*words: str) -> tuple[int, str, str]:
    """Return what a command comes to in a container with every capability, no filter and a descriptor 3."""
    argv = ["podman", "run", "--rm", "--pull=never", "--user=0:0", "--network=none", "--cap-add=all", "--tmpfs=/tmp"]
    argv += ["--security-opt=seccomp=unconfined", "--security-opt=unmask=all", "--preserve-fds=1", TOOLS, *words]
    done = run(["sh", "-c", 'exec "$@" 3</dev/null', "sh", *argv])
    return done.status, done.out, done.err


@pytest.fixture(scope="module")
def calls() -> dict[str, str]:
    """Return what each call came to in a card."""
    done = card("-q", "--image", TOOLS, "--", "python3", "-c", CALLS)
    assert done.status == 0, done.err
    found: dict[str, str] = json.loads(done.out)
    return found


@pytest.fixture(scope="module")
def control() -> dict[str, str]:
    """Return what each call came to without walls."""
    status, out, err = unwalled("python3", "-c", CALLS)
    assert status == 0, err
    found: dict[str, str] = json.loads(out)
    return found


@pytest.mark.parametrize("name", DENIED_CALLS)
def test_call(name: str, calls: dict[str, str], control: dict[str, str]) -> None:
    """The call is denied with its errno, and works without walls."""
    assert control[name] == "ok"
    assert calls[name] == DENIED_CALLS[name]


@pytest.mark.parametrize("user", ["keep-id", "root"])
@pytest.mark.parametrize("line", DENIED_TOOLS)
def test_tool(line: str, user: str) -> None:
    """The tool that people use for it says why it cannot, as the caller and as a root without capabilities."""
    done = card("-q", "--image", TOOLS, "--user", user, "--", *line.split())
    assert done.status != 0
    assert done.err.rstrip() in DENIED_TOOLS[line]


@pytest.mark.parametrize("line", DENIED_TOOLS)
def test_tool_without_walls(line: str) -> None:
    """The control: the same command works where nothing stops it."""
    assert unwalled(*line.split()) == (0, "", "")
