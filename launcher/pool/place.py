"""Where the pool is: a directory of its own beside the run directories, with its socket in it. Owner-only.

On every card-run's way: without a pool it costs one look for a file.
"""

import os

from launcher.run import directory

NAME = "card-run-pool"


def folder() -> str:
    """Return the pool's directory, whether it is there or not; raises Refused without a runtime directory."""
    return f"{os.path.dirname(directory.parent())}/{NAME}"


def socket() -> str:
    """Return the path of the pool's socket, whether it is there or not."""
    return f"{folder()}/socket"


def present() -> bool:
    """Return whether there is a pool to ask."""
    return os.path.exists(socket())
