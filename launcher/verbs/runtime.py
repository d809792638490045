"""`card runtime`: build and show what stage 2 and the hooks run on."""

import json
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from launcher import runtime
from launcher.run import output
from launcher.runtime import Runtime
from launcher.seccomp import text as seccomp_text

app = typer.Typer(help="The runtime: stage 2's interpreter and the hooks, built once per bench.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.command()
def build(
    *,
    force: Annotated[bool, typer.Option("--force", help="build again even if it is there and unchanged")] = False,
    as_json: AsJson = False,
) -> None:
    """Build the runtime unless it is there, and say where it is.

    Example: card runtime build --force
    """
    if force:
        cache = runtime.default_cache()
        runtime.ours(cache)
        # without its manifest a runtime is not taken for whole; the directory stays for cards that are starting
        with_manifest = f"{cache}/{runtime.manifest_name()}"
        if os.path.lexists(with_manifest):
            os.unlink(with_manifest)
    built = runtime.ensure()
    sys.stdout.write(json.dumps(_summary(built), indent=2) + "\n" if as_json else f"{built.path}\n")


@app.command()
def show(*, as_json: AsJson = False) -> None:
    """Show the runtime: where it is, its digest, its Python, its files and the filter's rules. Builds nothing.

    Exits 1 when there is none, or none that is as it was built.
    """
    found = runtime.lookup(runtime.default_cache())
    if found is None:
        output.say("there is no runtime of this Python and version, or it was altered: card runtime build")
        raise typer.Exit(1)
    rules = seccomp_text.text().splitlines()
    if as_json:
        sys.stdout.write(json.dumps({**_summary(found), "filter": rules}, indent=2) + "\n")
        return
    summary = _summary(found)
    rows = [f"{key:8} {summary[key]}" for key in ("path", "digest", "python", "rules", "size")]
    rows += ["", *(f"{size:>10}  {name}" for name, size in summary["files"].items()), "", *rules]
    sys.stdout.write("\n".join(rows) + "\n")


def _summary(found: Runtime) -> dict[str, Any]:
    files = dict(_files(found.path))
    return {
        "path": found.path,
        "digest": found.digest,
        "python": found.python,
        "rules": found.filter_rules,
        "size": sum(files.values()),
        "files": files,
    }


def _files(path: str) -> Iterator[tuple[str, int]]:
    """Yield each file below a path, relative to it and in order, with its size in bytes."""
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            place = os.path.join(folder, name)
            yield os.path.relpath(place, path), os.lstat(place).st_size
