"""The commands as they are installed: a few lines that start Python bare and know where everything lies.

`-I` keeps the caller's variables and directory out, `-S` the search for site packages, which costs every card
milliseconds: the folders of the dependencies are named instead. Pure text, and only the standard library.
"""

COMMANDS = {"card-run": "launcher.cli", "card": "launcher.begin"}
_TEXT = """\
#!{python} -IS
import sys

sys.path[:0] = [{lib!r}]
sys.path += {dependencies!r}
from {module} import main

if __name__ == "__main__":
    sys.exit(main())
"""


def text(module: str, *, python: str, lib: str, dependencies: "list[str]") -> str:
    """Return the program that runs a module's `main`: `lib` holds our packages, `dependencies` are others' folders."""
    return _TEXT.format(module=module, python=python, lib=lib, dependencies=dependencies)
