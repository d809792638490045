"""The demo, inside the bench: one card that works and then tries to get out, and what card-run says of it.

`make demo` runs it. Ends 0 only when the work was done, nothing got out, and the commit is there afterwards.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

WORKER = "/src/infra/bench/demo_worker.py"
SHOWN = ("run", "plan_digest", "level", "guarantees", "pins", "filesystem", "ledger", "times_ms", "exit_status")


def main() -> int:
    """Run the card and show its receipt."""
    home = Path.home()
    (home / "private").mkdir()
    (home / "private/id_ed25519").write_text("the bench's own secret\n", encoding="ascii")
    (home / "work").mkdir()
    words = ["card-run", "--read", WORKER, "--write", f"{home}/work", "--json", f"{home}/receipt.json"]
    words += ["--", "python3", WORKER]
    sys.stdout.write(f"$ {shlex.join(words)}\n")
    sys.stdout.flush()
    status = subprocess.run(words, check=False).returncode
    if status:
        return status
    receipt = json.loads((home / "receipt.json").read_text(encoding="utf-8"))
    sys.stdout.write("\nthe receipt, in part:\n" + json.dumps({name: receipt[name] for name in SHOWN}, indent=1) + "\n")
    sys.stdout.write("\nthe workspace afterwards:\n")
    sys.stdout.flush()
    return subprocess.run(["git", "-C", f"{home}/work/hello", "log", "--oneline"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
