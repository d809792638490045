"""`python3 -m infra.packaging install|uninstall`, in the checkout: what the Makefile's targets of these names run."""

import argparse
import sys

from infra.packaging import install
from launcher.run import site
from oci.refusal import Refused


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="infra.packaging", description=install.__doc__)
    parser.add_argument("action", choices=("install", "uninstall"))
    parser.add_argument("--prefix", default="/usr/local")
    parser.add_argument("--destdir", default="")
    parser.add_argument("--python", default="/usr/bin/python3", help="the interpreter that is to run card-run")
    parser.add_argument("--hooks-dir", default=site.DEFAULT)
    asked = parser.parse_args()
    place = install.Place(asked.prefix, asked.destdir.rstrip("/"), asked.python, asked.hooks_dir)
    try:
        install.install(place) if asked.action == "install" else install.uninstall(place)
    except (install.InstallError, Refused, OSError) as error:
        sys.stderr.write(f"{asked.action}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
