"""Whether a launch that came with a message fits the card, judged from the launch and not from what is said of it.

The rule: the attendant, which makes the walls, believes no key and no name that it has not compared.
"""

from launcher import guard
from launcher.egress import policy
from launcher.launch import Launch
from launcher.pool import key
from launcher.pool.declared import Card
from launcher.pool.stale import Stale
from launcher.run import site


def look(launch: Launch, card: Card, *, policy_path: str) -> None:
    """Raise Stale when the launch's own key is not the card's, or one of its names is not in its policy file.

    `policy_path` is that file's absolute path: a taker has a directory of its own.
    """
    unfit = key.unfit(launch)
    if unfit:
        raise Stale(f"no warm card can have {unfit}")
    differs = key.differs(card.key, key.of(launch, card.built, podman=card.program, hooks_dirs=site.hooks_dirs()))
    if differs:
        raise Stale(f"the card differs from what was asked for: {differs}")
    if launch.names:
        _names(launch, policy_path)


def _names(launch: Launch, path: str) -> None:
    """Compare the names with the file: it may have changed since, and it may not be one that the worker writes."""
    universe, refusals = policy.read(path)
    request = launch.asked.replace(merged=None, env_file=())
    refusals += guard.deciding_files(request, path, launch.filesystem)
    beyond = [name for name in launch.names if name not in universe.lines]
    if refusals or beyond:
        raise Stale(refusals[0].text if refusals else f"{', '.join(beyond)} is not in {path}")
