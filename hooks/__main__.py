"""The hooks as a program: `python3 -I -S -B .../hooks/__main__.py prestart|poststop`, the state on standard input.

Run as a file, not as a directory: running a directory imports `runpy`, 5 ms of the hook's 25. Puts the folder that
holds `hooks` and `oci` first on the module path, which -I leaves out, and nothing else of the caller's.
"""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/")[0].rpartition("/")[0])


def main(arguments: "list[str]") -> int:
    """Run one hook; return its exit status, 2 when the verb is not one."""
    if arguments == ["prestart"]:
        from hooks import prestart

        return prestart.run(0)
    if len(arguments) == 3 and arguments[0] == "outer":
        from hooks import outer

        return outer.run(*arguments[1:])
    if arguments == ["poststop"]:
        from hooks import poststop

        return poststop.run(0)
    os.write(2, b"usage: hooks prestart|poststop < state.json, or hooks outer DIRECTORY INDEX\n")
    return 2


if __name__ == "__main__":
    # Nothing is buffered and nothing is to be undone: taking the interpreter down in order would cost 2 ms.
    os._exit(main(sys.argv[1:]))
