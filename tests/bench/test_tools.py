"""People's tools work in a card: each is the real tool, doing what it is mostly used for, in an image that has it.

Each script runs in an empty writable workspace and prints what only a tool that worked can print.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench.cards import IMAGE, card
from tests.bench.toolbox import TOOLS, needs_tools

BASH = ("bash", "-euo", "pipefail", "-c")
PYTHON = ("python3", "script.py")  # a file, which multiprocessing's spawn needs
NODE = ("env", "NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt", "node", "-e")
IDENTITY = [f"--env=GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME=w", "EMAIL=w@w.invalid")]


@dataclass(frozen=True, slots=True)
class Script:
    """What to run, what it prints, and what runs it."""

    text: str
    says: str
    by: tuple[str, ...] = BASH

    def command(self, workspace: Path) -> list[str]:
        """Return the worker's command; a Python program is left in the workspace."""
        if self.by != PYTHON:
            return [*self.by, self.text]
        (workspace / "script.py").write_text(self.text)
        return list(self.by)


GIT = """
git init -q -b main repo; cd repo
commit() { echo "$1" > "$1"; git add "$1"; git commit -q -m "$1"; }
commit one; git checkout -q -b side; commit two; git checkout -q main; commit three; git rebase -q main side
echo more >> one; git stash -q; git stash pop -q; git restore one
git worktree add -q ../tree main~1; cat ../tree/one; git -C ../tree status --short; git worktree remove ../tree
git gc -q --prune=now; git fsck --strict 2>&1; git clone -q . ../copy; git -C ../copy log --format=%s
"""
CLONE = """
git clone -q https://github.com/octo/hello; cd hello; git pull -q --rebase; git log --format=%an v1 | sort -u | wc -l
"""
MOVE = """
mkdir -p a/deep b; echo x > a/deep/f; before=$(stat -c %i a/deep/f); mv a/deep/f b/g; ln b/g a/h; mv a/deep b/
test "$before" = "$(stat -c %i a/h)"; ln -s ../b/g a/s; cp -a b c; tar -cf - c | tar -xf - -C a; cat a/s a/c/g; ls b
"""
CURL = "curl -sS -4 https://github.com/; curl -sS -6 https://api.github.com/"
NAMES = "getent ahosts github.com | cut -d' ' -f1 | sort -u"
SCRIPT = "script -qec 'stty rows 33 cols 44; stty -a | head -1; tty' /dev/null < /dev/null | tr -d '\\r'"
SQLITE = """
import sqlite3, subprocess, sys
first = sqlite3.connect("data", isolation_level=None)
print(first.execute("pragma journal_mode=wal").fetchone()[0])
first.execute("create table t (x)")
first.execute("begin immediate")
other = "import sqlite3; sqlite3.connect('data', timeout=0).execute('insert into t values (1)')"
blocked = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True)
print(blocked.stderr.splitlines()[-1])
first.execute("commit")
second = sqlite3.connect("data")
second.execute("insert into t values (2)"); second.commit()
print(first.execute("select count(*) from t").fetchone()[0])
"""
PARALLEL = """
import asyncio, multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import shared_memory

def square(x): return x * x
def fill(name, queue):
    memory = shared_memory.SharedMemory(name); memory.buf[0] = 7; memory.close(); queue.put("filled")
async def shell():
    process = await asyncio.create_subprocess_shell("echo out; exit 3", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode().strip(), process.returncode

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool: squares = pool.map(square, range(5))
        memory, queue = shared_memory.SharedMemory(create=True, size=4096), context.Queue()
        process = context.Process(target=fill, args=(memory.name, queue)); process.start()
        print(method, squares, queue.get(), memory.buf[0]); process.join(); memory.close(); memory.unlink()
    with multiprocessing.Manager() as manager: print(len(manager.list([1, 2])))
    with ProcessPoolExecutor(2) as pool: print(list(pool.map(square, [3])))
    with ThreadPoolExecutor(8) as pool: print(sum(pool.map(square, range(100))))
    print(asyncio.run(shell()))
"""
PARALLEL_SAYS = "".join(f"{method} [0, 1, 4, 9, 16] filled 7\n" for method in ("fork", "spawn", "forkserver"))
SERVER = """
mkdir site; echo served > site/page; mkfifo said
for host in 127.0.0.1 ::1 0.0.0.0; do
  python3 -u -m http.server 0 --bind $host --directory site > said 2>/dev/null & server=$!
  read -r line < said; port=${line#* port }; port=${port%% *}
  case $host in ::1) name='[::1]';; *) name=localhost;; esac
  curl -sS "http://$name:$port/page"; kill $server; wait $server || :
done
"""
WATCH = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
queue = libc.inotify_init1(0)
assert libc.inotify_add_watch(queue, b".", 0x100 | 0x80) > 0, os.strerror(ctypes.get_errno())
open("new", "w").close(); os.rename("new", "newer")
data = b""
while data.count(b"new") < 2: data += os.read(queue, 4096)
while data:
    _, mask, _, length = struct.unpack("iIII", data[:16])
    print(hex(mask), data[16:16 + length].rstrip(b"\\0").decode()); data = data[16 + length:]
"""
EVERYWHERE = {
    "git": Script(GIT, "one\ntwo\nthree\none\n"),
    "git over https": Script(CLONE, "1\n"),
    "mv, ln, cp and tar": Script(MOVE, "x\nx\ndeep\ng\n"),
    "curl": Script(CURL, "hello from github.com\nhello from api.github.com\n"),
    "names": Script(NAMES, "2001:db8:1::10\n203.0.113.10\n"),
    "script and stty": Script(SCRIPT, "speed 38400 baud; rows 33; columns 44; line = 0;\n/dev/pts/0\n"),
    "sqlite": Script(SQLITE, "wal\nsqlite3.OperationalError: database is locked\n1\n", PYTHON),
    "python in parallel": Script(PARALLEL, f"{PARALLEL_SAYS}2\n[9]\n328350\n('out', 3)\n", PYTHON),
    "a server on localhost": Script(SERVER, "served\n" * 3),
    "inotify": Script(WATCH, "0x100 new\n0x80 newer\n", PYTHON),
}
NPM = """
mkdir pkg; cd pkg; echo '{"name": "pkg", "version": "1.2.3", "main": "main.js", "bin": {"say": "say.js"},
  "scripts": {"postinstall": "echo built > built"}}' > package.json
echo 'module.exports = "from the package"' > main.js; echo '#!/usr/bin/env node' > say.js
echo 'console.log("said")' >> say.js; cd ..; mkdir app; cd app; npm init -y > /dev/null
npm install --offline --no-audit --no-fund --loglevel=error ../pkg > /dev/null
node -p 'require("pkg")'; npx --offline say; npm uninstall --offline pkg > /dev/null
npm install --offline --no-audit "$(npm pack --silent ../pkg)" > /dev/null
node -p 'require("pkg/package.json").version'; test ! -L node_modules/pkg; cat node_modules/pkg/built
"""
PIP = """
mkdir -p pkg/src; cd pkg; echo 'def main(): print("from the wheel")' > src/local_pkg.py; cat > pyproject.toml <<END
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "local-pkg"
version = "1.0"
scripts = {local-say = "local_pkg:main"}
END
cd ..; pip wheel -q --no-index --no-build-isolation --no-deps -w wheels ./pkg
python3 -m venv venv; venv/bin/pip install -q --no-index --find-links wheels local-pkg; venv/bin/local-say
venv/bin/pip list --format=freeze | grep local
"""
COMPILE = """
printf '#include <stdio.h>\\n#include <math.h>\\nint main(){printf("%%.0f\\\\n", sqrt(49.0));}\\n' > main.c
printf 'all: one two\\n\\t./prog\\none two: prog\\n\\ttest -x prog\\nprog: main.c\\n\\tcc -o $@ $< -lm\\n' > Makefile
make -s -j2; echo 'int forty_two(void) { return 42; }' | cc -shared -fPIC -o lib.so -x c -
python3 -c 'import ctypes; print(ctypes.CDLL("./lib.so").forty_two())'
"""
PYTEST = """
cat > test_it.py <<END
import os, pytest
@pytest.mark.parametrize("n", range(8))
def test_it(n, tmp_path):
    (tmp_path / "x").write_text(str(n))
    open(os.environ["PYTEST_XDIST_WORKER"], "w").close()
END
python3 -m pytest -q -n 2 --dist=each --basetemp=made -p no:cacheprovider | tail -1 | cut -d' ' -f1,2; ls gw*
"""
NODE_TEXT = """
const os = require('os'), fs = require('fs'), dns = require('dns/promises'), { once } = require('events')
const { Worker } = require('worker_threads'), { execFileSync } = require('child_process')
async function main() {
  console.log(Object.keys(os.networkInterfaces()).sort().join(' '), os.networkInterfaces().lo[0].address)
  console.log((await dns.lookup('github.com', { family: 4 })).address)
  const watcher = fs.watch('.'); fs.writeFileSync('seen', ''); console.log((await once(watcher, 'change')).join(' '))
  watcher.close()
  const worker = new Worker('require("worker_threads").parentPort.postMessage("worker")', { eval: true })
  console.log((await once(worker, 'message'))[0], execFileSync('echo', ['child']).toString().trim())
  console.log((await (await fetch('https://github.com/')).text()).trim())
}
main()
"""
NODE_SAYS = "eth0 lo 127.0.0.1\n203.0.113.10\nrename seen\nworker child\nhello from github.com\n"
TOOLS_ONLY = {
    "npm": Script(NPM, "from the package\nsaid\n1.2.3\nbuilt\n"),
    "pip": Script(PIP, "from the wheel\nlocal-pkg==1.0\n"),
    "cc and make": Script(COMPILE, "7\n42\n"),
    "pytest with xdist": Script(PYTEST, "16 passed\ngw0\ngw1\n"),
    "node": Script(NODE_TEXT, NODE_SAYS, NODE),
}


def said(image: str, script: Script, workspace: Path, *options: str) -> str:
    """Return what a script prints in a card of an image that has its tools; it must succeed."""
    words = ["--image", image, "--write", str(workspace), *IDENTITY, *options]
    done = card("-q", *words, "--", *script.command(workspace))
    assert done.status == 0, done.out + done.err
    return done.out


@pytest.mark.parametrize("name", EVERYWHERE)
def test_in_the_card_image(name: str, workspace: Path) -> None:
    """What the card image has works in it."""
    assert said(IMAGE, EVERYWHERE[name], workspace) == EVERYWHERE[name].says


@needs_tools
@pytest.mark.parametrize("name", TOOLS_ONLY)
def test_in_the_tools_image(name: str, workspace: Path) -> None:
    """What people add to an image works as well."""
    assert said(TOOLS, TOOLS_ONLY[name], workspace) == TOOLS_ONLY[name].says


@needs_tools
@pytest.mark.parametrize("name", EVERYWHERE | TOOLS_ONLY)
def test_as_root(name: str, workspace: Path) -> None:
    """With `--user root` the same tools work, though that root holds no capability."""
    script = (EVERYWHERE | TOOLS_ONLY)[name]
    assert said(TOOLS, script, workspace, "--user", "root") == script.says
