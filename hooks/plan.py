"""The plan as the prestart hook reads it: the egress value, and what ties it to this very start.

The rule: the plan must be the one this container was started with. The launch token in the annotation is drawn for each
start and repeated by its plan, so another start's plan is refused; what podman was told is `hooks.bundle`'s to judge.
"""

from hooks import egress
from hooks.egress import Egress
from oci import annotations, strictjson
from oci.refusal import CardRunBug, Refusal, Refused
from oci.state import State

SCHEMA = 1


class Plan:
    """A plan: run id, launch token, nonce, digest (sha256 of its bytes, in hex), egress, the bundle's expectations."""

    __slots__ = ("bundle", "digest", "egress", "launch", "nonce", "run")

    def __init__(  # noqa: PLR0913 - what a plan is made of
        self, *, run: str, launch: str, nonce: str, digest: str, wall: Egress, bundle: "dict[str, object]"
    ) -> None:
        self.run = run
        self.launch = launch
        self.nonce = nonce
        self.digest = digest
        self.egress = wall
        self.bundle = bundle


def parse(data: bytes) -> Plan:
    """Return the plan in `data`, whichever start's it is.

    Raises Refused: `plan-malformed`, `plan-mismatch` (of itself), or what the egress value says.
    """
    members = _members(data)
    run, launch, nonce = (_text(members, key) for key in ("run", "launch", "nonce"))
    if members.get("schema") != SCHEMA:
        raise _malformed(f"its schema is {members.get('schema')!r}, not {SCHEMA}")
    if len(nonce) < 32 or not set(nonce) <= set("0123456789abcdef"):
        raise _malformed("its nonce is not 128 bits or more in hex")
    bundle = members.get("bundle")
    if not isinstance(bundle, dict):
        raise _malformed("it has no bundle")
    wall = egress.from_json(members.get("egress"))
    if wall.run != run:
        raise _mismatch("its egress is another run's")
    return Plan(run=run, launch=launch, nonce=nonce, digest=sha256(data), wall=wall, bundle=bundle)  # pyright: ignore[reportUnknownArgumentType]


def egress_of(data: bytes) -> Egress:
    """Return the egress value of a plan that the hook has checked already; raises Refused when it is malformed."""
    return egress.from_json(_members(data).get("egress"))


def _malformed(text: str) -> Refused:
    return Refused([Refusal("plan-malformed", f"the plan cannot be used: {text}")])


def _members(data: bytes) -> "dict[str, object]":
    try:
        value = strictjson.parse(data)
    except ValueError as error:
        raise _malformed(str(error)) from None
    if not isinstance(value, dict):
        raise _malformed("it is not an object")
    return value  # pyright: ignore[reportUnknownVariableType]


def _text(members: "dict[str, object]", key: str) -> str:
    value = members.get(key)
    if not isinstance(value, str) or not value:
        raise _malformed(f"it has no {key}")
    return value


def match(plan: Plan, state: State) -> None:
    """Raise Refused (`plan-mismatch`) unless the plan is the one that this container was started with."""
    wrong = [
        text
        for text, same in (
            ("its run id is not the container's", plan.run == state.annotations.get(annotations.RUN)),
            ("its launch token is not the container's", plan.launch == state.annotations.get(annotations.LAUNCH)),
        )
        if not same
    ]
    if wrong:
        raise _mismatch(*wrong)


def _mismatch(*wrong: str) -> Refused:
    return Refused([Refusal("plan-mismatch", f"the plan is not this start's: {text}") for text in wrong])


def sha256(data: bytes) -> str:
    """Return the digest in hex, by CPython's own code: `hashlib` would load OpenSSL, 2 ms of the hook's 25."""
    for module in ("_sha2", "_sha256", "hashlib"):  # the first from Python 3.12, the second before
        try:
            digest = __import__(module).sha256
        except ImportError:
            continue
        return str(digest(data).hexdigest())
    raise CardRunBug("this Python has no sha256")
