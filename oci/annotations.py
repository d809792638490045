"""The OCI annotations by which a container is known as a card's run (runtime-spec "Annotations", podman-run(1)).

They are the only words that reach a hook from podman's command line: hooks get no environment and no arguments of
this run. All are set by the launcher and are refused when a user passes them through.
"""

PREFIX = "org.card-run."
RUN = PREFIX + "run"
"""The run id. hooks.d files match on its presence."""
DIRECTORY = PREFIX + "directory"
"""The absolute path of the run directory."""
LAUNCH = PREFIX + "launch"
"""A token drawn for this start of podman, which the plan repeats: it is this start's plan, and no other's."""
HOOK_STDERR = "run.oci.hooks.stderr"
"""crun's own: the file that it appends the hooks' standard error to, which otherwise goes nowhere (crun(1))."""
