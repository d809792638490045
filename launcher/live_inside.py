"""The inner half of `launcher.live`, run by `podman unshare`: tables of pinned network namespaces, as nft lists them.

Takes the folder of card-run's packages and RUN=PIN words; writes one JSON object, run to listing. A run whose
namespace is gone by now is left out. Standard library and the hooks' own modules only.
"""

import json
import os
import sys


def main(root: str, words: "list[str]") -> None:
    """Write the listings. Ends in the last run's network namespace, so it is for a process of its own."""
    sys.path.insert(0, root)
    from hooks import netns, nft
    from hooks.egress import TABLE_PREFIX
    from oci.refusal import Refused

    found: "dict[str, str]" = {}
    for word in words:
        run, _, pin = word.partition("=")
        try:
            fd = os.open(pin, os.O_RDONLY | os.O_CLOEXEC)
            try:
                netns.setns(fd)
                found[run] = nft.list_table("inet", TABLE_PREFIX + run)
            finally:
                os.close(fd)
        except (OSError, Refused):
            continue
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
