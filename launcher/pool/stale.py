"""Why a card that was handed out is not used after all. Imports nothing."""


class Stale(Exception):
    """The bench is not any more what it was when the card was made: the run starts cold, and this card ends."""
