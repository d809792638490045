"""Saying no: the refusal value, the exception that carries several, and the exit codes.

Owns the one shape in which card-run declines to start a worker. A refusal is *our* decision before the start; a
denial is the kernel's at run time and is never one of these. Imports nothing of ours, and nothing that costs a hot
path time.
"""

EXIT_REFUSED = 125
EXIT_CANNOT_EXECUTE = 126
EXIT_NOT_FOUND = 127


class Refusal:
    """One reason not to start: a kebab-case `reason`, a sentence for a person, and what to do about it ("" if none)."""

    __slots__ = ("hint", "reason", "text")

    def __init__(self, reason: str, text: str, hint: str = "") -> None:
        self.reason = reason
        self.text = text
        self.hint = hint

    @classmethod
    def from_json(cls, value: "dict[str, str]") -> "Refusal":
        """Return the refusal that `to_json` made the object of; raises KeyError where a member is missing."""
        return cls(*(value[name] for name in ("reason", "text", "hint")))

    def to_json(self) -> "dict[str, str]":
        """Return the refusal as a JSON object: how a hook hands it to the launcher."""
        return {name: getattr(self, name) for name in ("reason", "text", "hint")}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Refusal):
            return NotImplemented
        return (self.reason, self.text, self.hint) == (other.reason, other.text, other.hint)

    def __hash__(self) -> int:
        return hash((self.reason, self.text, self.hint))

    def __repr__(self) -> str:
        return f"Refusal({self.reason!r}, {self.text!r}, {self.hint!r})"

    def __str__(self) -> str:
        """Return the refusal as the line that people and programs read (DESIGN "Receipt and output")."""
        line = f"SANDBOX REFUSED reason={self.reason} {self.text}"
        return f"{line} (hint: {self.hint})" if self.hint else line


class Refused(Exception):
    """The run is refused, for every independent reason at once. Nothing was applied when this is raised.

    `status` is what card-run exits with.
    """

    def __init__(self, refusals: "list[Refusal] | tuple[Refusal, ...]", *, status: int = EXIT_REFUSED) -> None:
        self.refusals = tuple(refusals)
        self.status = status
        super().__init__("\n".join(str(refusal) for refusal in self.refusals))


class CardRunBug(AssertionError):
    """Something that was already ruled out happened: a defect of card-run, reported with its traceback."""
