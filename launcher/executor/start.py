"""card-run as an executor starts it: by this interpreter and from this package, whatever PATH has.

Run as a program: `start.py FOLDERS DESCRIPTORS TERMINAL OPTION...`. FOLDERS are those of card-run's dependencies. The
descriptors that were handed over end here, and are nothing that podman inherits; with TERMINAL 1, standard input
becomes the controlling terminal of this session (tty(4)).
"""

import os
import sys


def main() -> None:
    """Do that, and become card-run."""
    folders, descriptors, terminal = sys.argv[1:4]
    for number in descriptors.split(","):
        os.set_inheritable(int(number), False)
    if terminal == "1":
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path[:0] = [here]
    sys.path += folders.split(os.pathsep)
    sys.argv[:] = ["card-run", *sys.argv[4:]]

    from launcher import cli  # only now can it be found

    cli.main()


if __name__ == "__main__":
    main()
