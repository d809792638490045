"""The JSON Schema of a card file (draft 7), made of the table of keys that the validator reads.

What it cannot say (is this a hostname, does that path exist, may what is written be read) is the validator's alone: a
card that this refuses is refused by card-run, and one that card-run takes is taken here. `card.schema.json` beside this
file is what is shipped for editors.
"""

import json
import os
from typing import Any

from launcher.access import judge
from launcher.cardfile import keys, kinds
from launcher.cardfile.keys import ACCESS, Key

FILE = f"{os.path.dirname(os.path.abspath(__file__))}/card.schema.json"
_LEVEL_HELP = {
    "workspace_read": "may the workspace be read",
    "workspace_write": "may the workspace be written",
    "host_read": "may other paths of the bench be named for reading",
    "host_write": "may other paths of the bench be named for writing",
    "network": "may the card reach its hosts",
    "command": "may the card start its command",
    "home": "HOME: the card's own, or yours",
    "isolation": "unconfined is refused by card-run",
}


def schema() -> dict[str, Any]:
    """Return the schema as plain data."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "card-run card file",
        "description": "One untrusted command and all that it may reach: card-file(5).",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **{key.name: _entry(key) for key in _of("")},
            **{name: _object({key.name: _entry(key) for key in _of(name)}) for name in keys.TABLES},
            ACCESS: _access(),
        },
    }


def text() -> str:
    """Return the schema as `card schema` prints it and the shipped file has it."""
    return json.dumps(schema(), indent=2) + "\n"


def _of(table: str) -> list[Key]:
    return [key for key in keys.of(defaults=False) if key.table == table]


def _entry(key: Key) -> dict[str, Any]:
    return {"description": key.help, **key.kind.schema}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**found, "required": list(required)} if required else found


def _access() -> dict[str, Any]:
    path = {"description": "a directory or file of the bench", **kinds.PATH.schema}
    root = {"path": path, **{name: _word(words, name) for name, words in judge.ROOT_WORDS.items()}}
    properties = {
        "workspace": {**path, "description": "the card's own directory"},
        **{name: _word(words, _LEVEL_HELP[name]) for name, words in judge.WORDS.items()},
        "ack_unconfined": {"type": "boolean", "description": "unconfined is meant"},
        "roots": {
            "type": "array",
            "description": "further places with their own answers",
            "items": _object(root, "path"),
        },
    }
    return _object(properties, "workspace")


def _word(words: tuple[str, ...], text: str) -> dict[str, Any]:
    return {"description": text, "type": "string", "enum": list(words), "default": words[0]}
