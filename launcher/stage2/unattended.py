"""Stage 2 of a prepared card: nobody waits for it, so it judges by itself what a launcher would have judged.

Only a plan made by `card prepare` leads here: its stage2.conf says so, and beside it lies the file that this module
reads, the nonce and the whole environment of the worker among it. The rule: the worker starts only when everything
that `launcher.run.receipt` wants of a run was measured, but the lifeline of a launcher, which there is none of.
"""

import os
import time

from launcher.stage2 import conf, enter, worker
from launcher.stage2.syscalls import Kernel
from oci import records
from oci.refusal import EXIT_REFUSED, Refusal, Refused

NAME = "unattended"
FILE = f"/run/card/{NAME}"
SCHEMA = "1"
STDERR = 2
ONE = ("schema", "run", "nonce", "digest", "table", "net", "expires")
MANY = ("expect", "env", "quiet")
# What must have been measured: fact and value.
WANTED = {
    "proof": "ok",
    "egress": "ok",
    "env": "scrubbed",
    "backend": "landlock",
    "read_outside": "EACCES",
    "write_outside": "EACCES",
    "no_new_privs": "1",
    "caps": "none",
    "user_namespace": "own",
    "seccomp_mode": "2",
    "seccomp_denied": "EPERM",
}


def parse(data: bytes) -> "dict[str, list[str]]":
    """Return the file's records; raises Refused (`conf-malformed`) for what `card prepare` does not write."""
    try:
        values = records.load(data)
    except ValueError as error:
        raise _malformed(str(error)) from error
    problems = [f"unknown key {key!r}" for key in values if key not in (*ONE, *MANY)]
    problems += [f"{key!r} does not come once" for key in ONE if len(values.get(key, ())) != 1]
    if not problems and (values["schema"] != [SCHEMA] or not values["expires"][0].isdigit()):
        problems.append("its schema or its date is not one of ours")
    if problems:
        raise Refused([refusal for problem in problems for refusal in _malformed(problem).refusals])
    return values


def _malformed(text: str) -> Refused:
    return Refused([Refusal("conf-malformed", f"{NAME}: {text}")])


def shortfall(facts: "dict[str, str]", wanted: "dict[str, list[str]]") -> "list[Refusal]":
    """Return why the worker may not start: empty only when all that a run must have was measured on this one."""
    expected = {**WANTED, "digest": wanted["digest"][0], "table": wanted["table"][0]}
    for item in wanted.get("expect", ()):
        name, _, value = item.partition("=")
        expected[name] = value
    missing = sorted(name for name, value in expected.items() if facts.get(name) != value)
    if not facts.get("used", "").isdigit() or facts["used"] == "0":
        missing.append("used")
    return [Refusal("not-enforced", f"not measured on this run: {', '.join(missing)}")] if missing else []


def line(run: str, facts: "dict[str, str]", net: str) -> str:
    """Return the line that says what is enforced, each number of it measured on this run or read from its proof."""
    used = f" used={facts['used']}" if facts["used"] != facts["abi"] else ""
    return (
        f"SANDBOX OK run={run} backend={facts['backend']} abi={facts['abi']}{used} seccomp={facts['seccomp']} "
        f"egress={facts['table']} allow={facts['allow']} deny={facts['deny']} names={facts['names']} net={net} "
        "level=full launcher=none"
    )


def run(kernel: Kernel) -> int:
    """Enter every wall, judge, and become the worker; return the exit code when that cannot be, the reason said."""
    try:
        wanted = _prepared(kernel)
        config, facts = _walled(kernel, wanted)
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker does not run and the user is told
        for refusal in enter.reasons(error):
            enter.say(refusal)
        return EXIT_REFUSED
    if "quiet" not in wanted:
        enter.say(line(config.run, facts, wanted["net"][0]))
    os.set_inheritable(STDERR, True)
    kernel.default_signals()
    code, text = worker.execute(config.argv, worker.environment(b"", wanted.get("env", [])))
    enter.say(f"card-run: {text}")
    return code


def _walled(kernel: Kernel, wanted: "dict[str, list[str]]") -> "tuple[conf.Conf, dict[str, str]]":
    found: list[tuple[str, str]] = []
    config, _ = enter.walls(kernel, {"nonce": wanted["nonce"]}, STDERR, found)
    facts = dict(found)
    lacking = shortfall(facts, wanted)
    if lacking:
        raise Refused(lacking)
    return config, facts


def _prepared(kernel: Kernel) -> "dict[str, list[str]]":
    """Return what was prepared for this card; raises Refused when nothing was, or too long ago."""
    try:
        config = conf.parse(kernel.read_file(enter.CONF))
    except OSError:
        config = None
    if config is None or not config.unattended:
        text = "nobody is waiting for this card: it was not started by card-run"
        raise Refused([Refusal("no-launcher", text, "start it with card-run, or make it with `card prepare`")])
    wanted = parse(kernel.read_file(FILE))
    if wanted["run"] != [config.run]:
        raise _malformed("it is another run's")
    if time.time() > int(wanted["expires"][0]):
        raise Refused([Refusal("prepared-expired", "this card was prepared too long ago", "prepare it anew")])
    return wanted
