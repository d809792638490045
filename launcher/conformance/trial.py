"""One trial: everything that a subject claims is tried once, walled and unwalled, and each part judged from that."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from launcher.conformance import inside
from launcher.conformance.claims import MEANING, NETWORK
from launcher.conformance.consistency import CHECKS, Case
from launcher.conformance.probes import Probe, probes
from launcher.conformance.scene import Scene, has_ipv6
from launcher.conformance.subject import Subject

if TYPE_CHECKING:
    from launcher.conformance.suite import Conformance

HELD, NOT_CLAIMED = "held", "not claimed"
SOMETHING, PROBED, STEADY = "something is claimed", "each claim can be tried", "the claims stay the same"


class Seen(NamedTuple):
    """Whether a probe's effect was seen, and what the attempt answered."""

    effect: bool
    answer: str


class Wrong(Exception):
    """A part does not hold; the text says what was seen."""


def parts(suite: "type[Conformance]") -> list[str]:
    """Return the whole matrix of a suite by name: what is said of the claims, what all must do, and the probes."""
    found = [f"claims: {name}" for name in (SOMETHING, PROBED, STEADY)]
    found += [f"consistency: {name}" for name in CHECKS]
    return found + [probe.name for probe in probes(suite.allowed, suite.denied, ipv6=has_ipv6())]


class Trial:
    """A subject in its scene. Attempts are made when the first probe is judged, all of them at once."""

    def __init__(self, suite: "Conformance", scene: Scene) -> None:
        self._suite = suite
        self._scene = scene
        self._matrix = probes(suite.allowed, suite.denied, ipv6=has_ipv6())
        self.subject = suite.make(scene)
        self.claims = frozenset(self.subject.claims)
        self._seen: dict[str, tuple[Seen, Seen]] | None = None

    def judge(self, part: str) -> str:
        """Return how a part came out, HELD or NOT_CLAIMED; raises Wrong."""
        kind, _, name = part.partition(": ")
        if kind == "claims":
            self._judge_claims(name)
        elif kind == "consistency":
            _raise(
                CHECKS[name](Case(self.subject, self._scene, self._suite.python, self._suite.inside(self._scene.work)))
            )
        else:
            probe = next(one for one in self._matrix if one.name == part)
            if probe.claim not in self.claims:
                return NOT_CLAIMED
            self._judge_probe(probe)
        return HELD

    def _judge_claims(self, name: str) -> None:
        if name == SOMETHING:
            _raise("" if self.claims else "nothing is claimed, so nothing would be tried")
        elif name == STEADY:
            again = frozenset(self.subject.claims)
            _raise("" if again == self.claims else f"claimed at first {sorted(self.claims)}, now {sorted(again)}")
        else:
            unknown = sorted(self.claims - MEANING.keys())
            untried = sorted((self.claims & MEANING.keys()) - {probe.claim for probe in self._matrix})
            alone = NETWORK in self.claims and not self._suite.denied
            _raise(
                "; ".join(
                    [
                        *(f"{claim} is no guarantee that is known here" for claim in unknown),
                        *(f"{claim} is claimed, and nothing here tries it" for claim in untried),
                        *([f"{NETWORK} is claimed: name a place beyond this machine in `denied`"] if alone else []),
                    ]
                )
            )

    def _judge_probe(self, probe: Probe) -> None:
        if self._seen is None:
            self._seen = self._attempt()
        walled, control = self._seen[probe.name]
        if walled.effect != probe.opens:
            happened = "works not" if probe.opens else "works, and is claimed not to"
            raise Wrong(f"BROKEN {probe.name}: it {happened} (answer: {walled.answer[:300]!r})")
        if not control.effect:
            text = "without the wall it has no effect either, so nothing is shown"
            raise Wrong(f"NO CONTROL {probe.name}: {text} (answer: {control.answer[:300]!r})")

    def _attempt(self) -> dict[str, tuple[Seen, Seen]]:
        matrix = [probe for probe in self._matrix if probe.claim in self.claims]
        inside_work, inside_read = (self._suite.inside(path) for path in (self._scene.work, self._scene.read))
        walled = self._observe(self.subject, matrix, work=inside_work, read=inside_read)
        unwalled = self._suite.unwalled(self._scene)
        try:
            control = self._observe(unwalled, matrix, work=self._scene.work, read=self._scene.read)
        finally:
            unwalled.close()
        pairs = zip(walled, control, strict=True)
        return {probe.name: pair for probe, pair in zip(matrix, pairs, strict=True)}

    def _observe(self, subject: Subject, matrix: Sequence[Probe], *, work: str, read: str) -> list[Seen]:
        """Make the attempts and look for the effect of each."""
        words = json.dumps([self._scene.words(probe, work=work, read=read) for probe in matrix]).encode()
        done = subject.run([*self._suite.python, "-I", "-c", _program()], stdin=words)
        try:
            answers = [str(answer) for answer in json.loads(done.stdout)]
        except ValueError:
            said = done.stderr.decode(errors="replace")[-500:]
            raise Wrong(f"the attempts could not be made: status {done.status}, and said {said!r}") from None
        return [Seen(self._scene.seen(probe, answer), answer) for probe, answer in zip(matrix, answers, strict=True)]


def outcome(trial: Trial, part: str) -> tuple[str, str]:
    """Return how a part came out and "", or "" and what is wrong."""
    try:
        return trial.judge(part), ""
    except Wrong as error:
        return "", str(error)


def _program() -> str:
    with open(inside.__file__, encoding="utf-8") as file:
        return file.read()


def _raise(problem: str) -> None:
    if problem:
        raise Wrong(problem)
