"""The syscall wall in words, one line per rule, in the order in which the filter asks."""

import errno

from launcher.seccomp.table import Arch, Deny, on, rules, this_machine


def lines(arch: Arch, deny: tuple[Deny, ...]) -> list[str]:
    """Return the filter for a machine as text: what is refused outright, each rule, and what happens to the rest."""
    head = [
        f"seccomp arch={arch.name} rules={len(on(arch, deny))}",
        f"KILL   any call that is not {arch.name}'s own" + (" (i386 and x32 entry)" if arch.x32 else " (32-bit entry)"),
        f"ENOSYS any call newer than number {arch.last}, or in no table",
    ]
    return [*head, *(_line(rule) for rule in on(arch, deny)), "ALLOW  the rest"]


def _line(rule: Deny) -> str:
    condition = " and ".join(test.words for test in rule.tests)
    asked = f"{rule.call} if {condition}" if condition else rule.call
    return f"{errno.errorcode[rule.errno]:<6} {asked}: {rule.why}"


def text() -> str:
    """Return the wall of this bench's machine as text; raises Refused for a machine without a table."""
    return "\n".join(lines(this_machine(), rules())) + "\n"
