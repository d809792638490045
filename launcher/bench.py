"""The bench's own settings: `/etc/card-run/config.toml`, which only its administrator can write.

Strict: an unknown key is refused. A missing file means the defaults.
"""

import os
from ipaddress import ip_network

from launcher.value import Value
from oci.refusal import Refusal

CONFIG = "/etc/card-run/config.toml"


class Bench(Value):
    """Settings of this machine: whether documentation ranges count as internet, and the ranges of other benches."""

    documentation_ranges: bool = False
    benches: tuple[str, ...] = ()


def read(path: str = CONFIG) -> tuple[Bench, list[Refusal]]:
    """Return the settings and every refusal that the file earns."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return Bench(), []
    except OSError as error:
        return Bench(), [Refusal("bench-config", f"{path}: {os.strerror(error.errno or 0)}")]
    import tomllib  # 4 ms, only on a bench that is configured

    try:
        table = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return Bench(), [Refusal("bench-config", f"{path}: {error}")]
    return _judge(table, path)


def _judge(table: dict[str, object], path: str) -> tuple[Bench, list[Refusal]]:
    known = {"documentation_ranges", "benches"}
    problems = [f"unknown key {key!r}" for key in table if key not in known]
    documentation = table.get("documentation_ranges", False)
    if not isinstance(documentation, bool):
        problems.append("documentation_ranges is true or false")
    benches, wrong = _ranges(table.get("benches", []))
    refusals = [Refusal("bench-config", f"{path}: {problem}") for problem in problems + wrong]
    return Bench(documentation_ranges=documentation is True, benches=benches), refusals


def _ranges(value: object) -> tuple[tuple[str, ...], list[str]]:
    if not isinstance(value, list):
        return (), ["benches is a list of CIDR ranges"]
    good: list[str] = []
    problems: list[str] = []
    for item in value:  # pyright: ignore[reportUnknownVariableType] # TOML's own type, judged below
        try:
            good.append(str(ip_network(str(item))))  # pyright: ignore[reportUnknownArgumentType]
        except ValueError as error:
            problems.append(f"benches: {error}")
    return tuple(good), problems
