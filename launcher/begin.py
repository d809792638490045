"""`card` as it is started: its verbs take half a second to import, and Ctrl-C meanwhile is no defect to be traced.

Once they are there, an interrupt is an exception again: what a verb has made it takes away. Imports `signal` alone.
"""

import signal


def main() -> None:
    """Import the verbs, and run one."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from launcher.card import main as card

    signal.signal(signal.SIGINT, before)
    card()
