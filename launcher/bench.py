"""The bench's own settings: `/etc/card-run/config.toml`, which only its administrator can write.

Strict: an unknown key is refused, and so is a file that root does not own or others could write or replace. A missing
file means the defaults. What every run is restricted by, `[ceiling]`, is wanted before podman's command is made; the
rest when podman runs already, so TOML is parsed early only where the file speaks of a ceiling at all.
"""

from launcher import trust
from launcher.value import Value
from oci.refusal import Refusal, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from launcher.access.ceiling import Ceiling

CONFIG = "/etc/card-run/config.toml"
OWNERS = (0,)
_CEILING = "ceiling"
REASON = "bench-config"
GRANT_SECONDS = 900
_MOST_GRANT_SECONDS = 86400


class Bench(Value):
    """Settings of this machine: whether documentation ranges count as internet, and the ranges of other benches.

    `grants_may_exceed_policy` lets a grant open a host that is not in the policy file, for its run; `grant_seconds` is
    how long a grant may be good.
    """

    documentation_ranges: bool = False
    benches: tuple[str, ...] = ()
    grants_may_exceed_policy: bool = False
    grant_seconds: int = GRANT_SECONDS


class CeilingFile(Value):
    """A bench's ceiling, and the bytes of the file that states it."""

    path: str
    data: bytes
    ceiling: "Ceiling"


def read() -> tuple[Bench, list[Refusal]]:
    """Return the settings and every refusal that the file earns, `[ceiling]` included."""
    table, refusals = _table(trust.read(CONFIG, OWNERS, above=True))
    settings, wrong = _judge(table)
    return settings, [*refusals, *wrong]


def ceiling() -> tuple[CeilingFile | None, list[Refusal]]:
    """Return the ceiling, or None when this bench has none, and every refusal that the file as such earns.

    What is wrong beside a ceiling is `read`'s to say.
    """
    file = trust.read(CONFIG, OWNERS, above=True)
    if file.faults:
        return None, _faults(file)
    if file.data is None or _CEILING.encode() not in file.data:
        return None, []
    table, refusals = _table(file)
    if refusals or _CEILING not in table:
        return None, refusals
    found, refusals = _ceiling(table[_CEILING])
    return None if found is None else CeilingFile(path=CONFIG, data=file.data, ceiling=found), refusals


def _faults(file: trust.File) -> list[Refusal]:
    hint = "it decides for everybody on this bench: root's, mode 0644, in directories that only root can write"
    return [Refusal(REASON, f"{file.path}: {fault}", hint) for fault in file.faults]


def _table(file: trust.File) -> "tuple[dict[str, Any], list[Refusal]]":
    if file.data is None:
        return {}, _faults(file)
    from launcher import plaintoml

    try:
        text = file.data.decode()
        table = plaintoml.read(text)
        if table is None:
            import tomllib  # 12 ms, only where the settings are more than plain

            table = tomllib.loads(text)
    except RecursionError:
        return {}, [Refusal(REASON, f"{file.path}: it is nested too deeply")]
    except ValueError as error:  # TOML's, UTF-8's, and int()'s own limit of digits
        return {}, [Refusal(REASON, f"{file.path}: {error}")]
    if _CEILING in table and _CEILING.encode() not in file.data:
        text = f"{file.path}: the key {_CEILING} is spelt with escapes"
        return table, [Refusal(REASON, text, "write [ceiling]: it is looked for by its letters")]
    return table, []


def _judge(table: "dict[str, Any]") -> tuple[Bench, list[Refusal]]:
    known = ("documentation_ranges", "benches", "grants_may_exceed_policy", "grant_seconds", _CEILING)
    refusals: list[Refusal] = []
    for key in table:
        if key not in known:
            from launcher.access.judge import nearest

            refusals.append(Refusal(REASON, f"{CONFIG}: unknown key {key!r}", nearest(key, known)))
    switches = {name: table.get(name, False) for name in ("documentation_ranges", "grants_may_exceed_policy")}
    wrong = [f"{name} is true or false" for name, value in switches.items() if not isinstance(value, bool)]
    seconds = table.get("grant_seconds", GRANT_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds <= _MOST_GRANT_SECONDS:
        wrong.append(f"grant_seconds is a number of seconds from 1 to {_MOST_GRANT_SECONDS}")
        seconds = GRANT_SECONDS
    benches, unclear = _ranges(table.get("benches", []))
    refusals += [Refusal(REASON, f"{CONFIG}: {problem}") for problem in wrong + unclear]
    if _CEILING in table:
        refusals += _ceiling(table[_CEILING])[1]
    switched = {name: value is True for name, value in switches.items()}
    return Bench(**switched, benches=benches, grant_seconds=seconds), refusals


def _ceiling(value: object) -> "tuple[Ceiling | None, list[Refusal]]":
    from launcher.access.table import parse_ceiling

    if not isinstance(value, dict):
        return None, [Refusal(REASON, f"{CONFIG}: ceiling is a table", "write [ceiling] above its keys")]
    try:
        return parse_ceiling(value, base="/"), []  # pyright: ignore[reportUnknownArgumentType]
    except Refused as error:
        return None, [Refusal(REASON, f"{CONFIG}: {one.text}", one.hint) for one in error.refusals]


def _ranges(value: object) -> tuple[tuple[str, ...], list[str]]:
    from ipaddress import ip_network

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
