"""card-run as an executor starts it: by this interpreter and from this package, whatever PATH has.

Run as a program: `start.py DESCRIPTORS TERMINAL OPTION...`. The descriptors that were handed over end here, and are
nothing that podman inherits; with TERMINAL 1, standard input becomes the controlling terminal of this session (tty(4)).
"""

import fcntl
import os
import sys
import termios


def main() -> None:
    """Do that, and become card-run."""
    descriptors, terminal = sys.argv[1:3]
    for number in descriptors.split(","):
        os.set_inheritable(int(number), False)
    if terminal == "1":
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, here)
    sys.argv[:] = ["card-run", *sys.argv[3:]]

    from launcher import cli  # only now can it be found

    cli.main()


if __name__ == "__main__":
    main()
