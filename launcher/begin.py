"""`card` as it is started: its verbs take half a second to import, and Ctrl-C meanwhile is no defect to be traced.

Once they are there, an interrupt is an exception again: what a verb has made it takes away. Imports nothing slow.
"""

import signal
import sys


def main() -> None:
    """Import the verbs, and run one; what cannot be in a directory that was deleted is refused, exit status 2."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from launcher import card
    from launcher.run import output, perform

    signal.signal(signal.SIGINT, before)
    try:
        card.main()
    except FileNotFoundError as error:
        gone = perform.nowhere(error)
        if gone is None:
            raise
        output.refusals(gone.refusals)
        sys.exit(2)
