"""`card new|set|get|lint|schema`: card files, written, changed and judged. Nothing here starts a card."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from launcher.cardfile import edit, lint, schema, template
from launcher.cardfile.keys import Key
from launcher.cardfile.load import Located
from launcher.fs import policy
from launcher.guard import forbidden
from launcher.run import output
from launcher.verbs import mistaken
from oci.refusal import Refusal, Refused

DEFAULT = "card.toml"
Words = Annotated[list[str], typer.Argument(metavar="[FILE] {KEY VALUE...}...", help="FILE is card.toml unless named")]
# What a directory can be that no card may work in; anything else about it is a run's to find.
_NO_WORKSPACE = {"path-reserved", "path-too-wide"}


def new(
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="the card file")] = DEFAULT,
    *,
    force: Annotated[bool, typer.Option("--force", help="write over a file that is there")] = False,
) -> None:
    """Write a commented card file that runs as it is. Asks nothing.

    Example: card new && card-run --card card.toml
    """
    folder = os.path.dirname(os.path.realpath(file))
    inside = _may_be_workspace(folder)
    text = template.card(os.path.basename(file), schema=f"file://{schema.FILE}", inside=inside)
    try:
        edit.write(file, text, fresh=not force)
    except FileExistsError:
        raise Refused([Refusal("card-exists", f"{file} is there already", "card new --force writes over it")]) from None
    except OSError as error:
        raise Refused([Refusal("card-unwritable", f"{file}: {os.strerror(error.errno or 0)}")]) from None
    sys.stdout.write(f"{file}\n")
    if not inside:
        output.say(f"NOTE no card may be given {folder} to write, so `write` is still a comment")
    named = shlex.quote(file)
    output.say(f"next: look into it, then `card plan --card {named}`, then `card-run --card {named}`")


def _may_be_workspace(folder: str) -> bool:
    _, refusals = policy.decide(policy.Asked(write=(folder,), look_only=True), forbidden=forbidden())
    return not _NO_WORKSPACE.intersection(refusal.reason for refusal in refusals)


def set_(
    words: Words,
    *,
    add: Annotated[bool, typer.Option("--add", help="add to a list what it has not yet")] = False,
    unset: Annotated[bool, typer.Option("--unset", help="take the key out")] = False,
) -> None:
    """Change keys of a card file, keeping comments and order. What would make it worse is not written.

    After a key that takes one value another may stand, and all are judged together; a list takes all that follows.

    Examples: card set hosts pypi.org files.pythonhosted.org; card set agent.toml limits.memory 4g limits.cpus 2
    """
    file, key, values = _split(words)
    if add and unset:
        raise typer.BadParameter("--add and --unset exclude each other")
    changes = [_change(one, said, add=add, unset=unset) for one, said in _pairs(key, values, unset=unset)]
    text = edit.read(file)
    changed = edit.changed(text, changes, base=os.path.dirname(os.path.abspath(file)))
    if changed == text:
        return
    try:
        edit.write(file, changed)
    except OSError as error:
        raise Refused([Refusal("card-unwritable", f"{file}: {os.strerror(error.errno or 0)}")]) from None


def _pairs(key: Key, values: list[str], *, unset: bool) -> Iterator[tuple[Key, list[str]]]:
    """Yield each key with its own values."""
    count = 0 if unset else len(values) if key.kind.many else 1
    if not unset and not values:
        raise typer.BadParameter(f"{key.dotted} lacks its value")
    yield key, values[:count]
    if values[count:]:
        following, *rest = values[count:]
        yield from _pairs(edit.find(following), rest, unset=unset)


def _change(key: Key, values: list[str], *, add: bool, unset: bool) -> Callable[[str], str]:
    if unset:
        return lambda text: edit.remove(text, key)
    if add:
        return lambda text: edit.extend(text, key, values)
    new = edit.value(key, values)
    return lambda text: edit.assign(text, key, new)


def get(
    words: Annotated[list[str], typer.Argument(metavar="[FILE] KEY", help="FILE is card.toml unless named")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print it as JSON")] = False,
) -> None:
    """Print what a card file says for one key, a list one element on each line. Exits 1 when it says nothing.

    Example: card get agent.toml worker.model_host
    """
    file, key, values = _split(words)
    if values:
        raise typer.BadParameter("it takes one key")
    found = edit.lookup(edit.read(file), key)
    if found is None:
        raise typer.Exit(1)
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
    else:
        items: list[Any] = [*found] if isinstance(found, list) else [found]
        sys.stdout.write("".join(f"{_said(item)}\n" for item in items))


def _said(item: Any) -> str:
    return str(item).lower() if isinstance(item, bool) else str(item)


def _split(words: list[str]) -> tuple[str, Key, list[str]]:
    """Return file, key and values: a first word that looks like a file is one."""
    named = mistaken.names_file(words)
    file = words[0] if named else DEFAULT
    key, *values = words[named:]
    return file, edit.find(key), values


def lint_(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE]...", help="card files (card.toml)")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print the problems as JSON")] = False,
) -> None:
    """Tell every problem of card files with line and column. Exits 1 when there is one.

    Your config.toml is judged as what it is. Example: card lint cards/*.toml
    """
    found: list[tuple[str, Located]] = []
    unread: list[Refusal] = []
    for file in files or [DEFAULT]:
        try:
            found += [(file, problem) for problem in lint.problems(file)]
        except Refused as error:
            unread += error.refusals
    if as_json:
        rows = [{"file": file, **problem.as_dict()} for file, problem in found]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        sys.stdout.write("".join(f"{_line(file, problem)}\n" for file, problem in found))
    if unread:
        raise Refused(unread)
    raise typer.Exit(1 if found else 0)


def _line(file: str, problem: Located) -> str:
    hint = f" ({problem.hint})" if problem.hint else ""
    return output.printable(f"{file}:{problem.line}:{problem.column}: {problem.text}{hint}")


def schema_() -> None:
    """Print the JSON Schema of a card file, for editors.

    Example: card schema > card.schema.json
    """
    sys.stdout.write(schema.text())
