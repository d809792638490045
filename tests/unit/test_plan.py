"""The plan as a value: judged pins, and texts that say the same thing to nft, to the card and to stage 2."""

import hashlib
import json
from ipaddress import IPv4Address
from typing import Any

import pytest

from hooks import audit
from launcher import launch, network, plan, report
from launcher.bench import Bench
from launcher.egress.answers import Answer
from launcher.launch import Launch
from launcher.options import read
from launcher.stage2 import conf
from oci.refusal import Refused

NAMES = ("github.com", "api.github.com", "objects.githubusercontent.com")
PUBLIC = IPv4Address("20.0.0.0")


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Return the launch of a small card on a bench with both families."""
    monkeypatch.setattr(network, "_default_route4", lambda: True)
    monkeypatch.setattr(network, "_default_route6", lambda: True)
    judged, refusals = launch.judge(read(["--run", "r1", "--resolver", "192.0.2.53", "--", "sh", "-c", "x\ny"])[0])
    assert refusals == []
    return judged


def complete(judged: Launch, answers: dict[str, Answer], **changes: Any) -> plan.Plan:
    """Return the whole plan."""
    given: dict[str, Any] = {"bench": Bench(), "own": (), "bundle": {"args": []}, **changes}
    return plan.complete(judged, answers=answers, **given)


def good() -> dict[str, Answer]:
    """Return an answer for each base name."""
    return {
        name: Answer(addresses=(str(PUBLIC + number), f"2606:4700::{number + 1:x}"), source="dns")
        for number, name in enumerate(NAMES)
    }


def reasons(judged: Launch, answers: dict[str, Answer], **changes: Any) -> list[str]:
    """Return why a plan is refused."""
    with pytest.raises(Refused) as caught:
        complete(judged, answers, **changes)
    return [refusal.reason for refusal in caught.value.refusals]


def test_every_text_says_the_same(one: Launch) -> None:
    """The table passes the auditor, hosts has the pins, resolv.conf the DNS address, and the digest is right."""
    whole = complete(one, good())
    facts = audit.audit(whole.table, whole.egress)
    assert (facts.allow, facts.names, facts.dns) == (6, 3, "169.254.1.1")
    assert len(whole.egress.addresses) == 6
    hosts = [line.split() for line in plan.hosts(whole).splitlines()]
    assert {(words[0], words[1]) for words in hosts if "localhost" not in words} == {
        (address, name) for name, answer in good().items() for address in answer.addresses
    }
    assert plan.resolv_conf(whole) == "nameserver 169.254.1.1\nsearch .\noptions ndots:1 timeout:2 attempts:2\n"
    assert whole.digest == hashlib.sha256(whole.json).hexdigest()
    content = json.loads(whole.json)
    assert (content["run"], content["launch"], content["nonce"]) == ("r1", one.token, whole.nonce)


def test_what_stage_2_reads(one: Launch) -> None:
    """Stage 2's own strict reader takes it, to the letter of the command."""
    config = conf.parse(plan.stage2_conf(complete(one, good())))
    assert (config.run, config.argv, config.network) == ("r1", ("sh", "-c", "x\ny"), True)
    assert "/card" in config.policy.private


def test_no_secret_is_in_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment values are in no text of the plan."""
    monkeypatch.setattr(network, "_default_route4", lambda: True)
    monkeypatch.setattr(network, "_default_route6", lambda: False)
    words = ["--env", "TOKEN=s3cret", "--resolver", "192.0.2.53", "--", "true"]
    whole = complete(launch.judge(read(words)[0])[0], good())
    for text in (whole.json, plan.stage2_conf(whole), whole.table.encode(), plan.hosts(whole).encode()):
        assert b"s3cret" not in text


@pytest.mark.parametrize(
    "bad", ["127.0.0.1", "10.0.0.8", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "203.0.113.1"]
)
def test_one_bad_record_refuses_the_plan(one: Launch, bad: str) -> None:
    """A good address beside it does not help: a poisoned resolver fails closed."""
    answers = good() | {"github.com": Answer(addresses=(str(PUBLIC), bad), source="dns")}
    assert reasons(one, answers) == ["address-denied"]


def test_every_bad_name_at_once(one: Launch) -> None:
    """Names without an answer and bad addresses are all told."""
    answers = good() | {
        "github.com": Answer(failure="does not exist (NXDOMAIN)"),
        "api.github.com": Answer(addresses=("10.0.0.1", "192.168.0.1"), source="dns"),
    }
    assert sorted(reasons(one, answers)) == ["address-denied", "address-denied", "name-unresolved"]


def test_benches_and_own_addresses_are_denied(one: Launch) -> None:
    """An address of this bench, or in another bench's range, is no pin; the ranges are denied by the table too."""
    bench = Bench(benches=("20.0.0.0/30",))
    assert set(reasons(one, good(), bench=bench)) == {"address-denied"}
    assert reasons(one, good(), own=((str(PUBLIC), "this bench's own address"),)) == ["address-denied"]
    whole = complete(one, good(), bench=Bench(benches=("198.51.100.0/24",)))
    assert "198.51.100.0/24" in whole.table


def test_documentation_needs_the_benchs_word(one: Launch) -> None:
    """Documentation addresses are pinned only where the bench's configuration says so."""
    answers = good() | {"github.com": Answer(addresses=("203.0.113.10",), source="dns")}
    assert reasons(one, answers) == ["address-denied"]
    whole = complete(one, answers, bench=Bench(documentation_ranges=True))
    assert whole.egress.pins["github.com"] == ("203.0.113.10",)


def test_too_many_addresses(one: Launch) -> None:
    """Past a stated cap the plan is refused, not truncated."""
    many = tuple(str(PUBLIC + number) for number in range(plan.ADDRESS_LIMIT + 1))
    assert reasons(one, good() | {"github.com": Answer(addresses=many)}) == ["too-many-addresses"]


def test_scale(one: Launch) -> None:
    """A thousand names and five thousand addresses make a table that the auditor passes."""
    names = (*NAMES, *(f"n{number}.example.org" for number in range(997)))
    answers = {
        name: Answer(addresses=tuple(str(PUBLIC + number * 5 + extra) for extra in range(5)))
        for number, name in enumerate(names)
    }
    whole = complete(one.replace(names=names), answers)
    facts = audit.audit(whole.table, whole.egress)
    assert (facts.names, facts.allow) == (1000, 5000)


@pytest.mark.parametrize("text", ["garbage", "20.0.0.1%x", "2606:4700::1%eth0", ""])
def test_an_answer_that_is_no_address_is_refused(one: Launch, text: str) -> None:
    """A hosts file can hold anything: it is a refusal and no traceback, a zone of the bench's included."""
    answers = good() | {"github.com": Answer(addresses=(text,), source="/etc/hosts")}
    assert reasons(one, answers) == ["address-denied"]


def test_a_plan_cannot_drive_the_terminal() -> None:
    """What is printed of a plan shows controls of a path escaped, C1 too, and its lines as lines."""
    assert report._lines("write '/w\x9b2J'\nread '/r\x1b[m'\n") == "write '/w\\x9b2J'\nread '/r\\x1b[m'"
