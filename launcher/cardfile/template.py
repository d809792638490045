"""What `card new` writes: a card that runs as it is, in the directory it stands in, with the rest as comments.

Pure text, and a good card: a test lints it, and every key in a comment too.
"""

_HEAD = """\
#:schema {schema}
# A card: one untrusted command, and everything that it may reach. card-file(5) explains every key.
#   card lint {file}              is it well formed?
#   card plan --card {file}       what would it come to, rule by rule?
#   card-run --card {file}        run it; flags override, and a command after -- replaces this one

# What to run, word by word. A coding agent would be: command = ["agent", "--task", "fix the failing test"]
command = ["sh", "-c", "echo \\"a card in $PWD:\\"; ls"]

# The image, from podman's own storage; nothing is pulled.
# image = "localhost/card-run/card:latest"

# Directories that it may write; the first is its working directory. Paths start from this file's directory, or from ~.
"""
_INSIDE = """\
write = ["."]
# This file is in there, and decides what the next run may do: the worker may read and not write it.
protect = ["{file}"]
"""
_OUTSIDE = """\
# write = ["work"]
"""
_TAIL = """\

# What it may read beside that: with programs to run, or without.
# read = ["~/reference"]
# read_noexec = ["~/data"]

# Refuse to run if one of these is inside anything above. It is not reachable anyway, unless you name it.
# secret = ["~/.ssh"]

# Variables: yours by name, or with a value. Nothing else of your environment crosses.
# env = ["ANTHROPIC_API_KEY", "LANG=C.UTF-8"]

# Hosts that it may reach on port 443 beside github.com. Each must be in the policy file already.
# hosts = ["pypi.org", "files.pythonhosted.org"]
# No network at all:
# net = "none"

# A terminal, for an agent that you talk to.
# interactive = true
# tty = true

[worker]
# description = "the coding agent"
# The one host of its model, from the policy file.
# model_host = "api.anthropic.com"

[limits]
# Seconds until it is ended, with status 124.
timeout = 3600
# memory = "4g"
# cpus = 2
# pids = 1000
# nofile = 4096

# A profile instead of lists: deny, gated (closed unless a grant opens it for one run) or allow. What is left out is
# deny. With it, take `write` out above: the workspace says it.
# [access]
# workspace = "."
# workspace_read = "allow"
# workspace_write = "allow"
# network = "allow"
# command = "allow"
"""


def card(file: str, *, schema: str, inside: bool) -> str:
    """Return the text of a new card called `file`; `inside` says whether its own directory may be its workspace."""
    middle = _INSIDE if inside else _OUTSIDE
    return (_HEAD + middle + _TAIL).replace("{schema}", schema).replace("{file}", file)
