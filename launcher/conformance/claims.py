"""The guarantee bits that an executor may claim, and what each means: the receipt's own names, and one more.

One-way: a bit that is not claimed says nothing. Imports nothing.
"""

PROCESS, WRITE, READ, ENV = "process_boundary", "write_boundary", "read_boundary", "env_scrub"
NETWORK, ADDRESS, TARGET = "network_boundary", "address_network", "target_network"
LIMITS, LIFETIME = "resource_limits", "lifetime_containment"

MEANING = {
    PROCESS: "no process outside is seen, signalled or reached; no privilege is gained, no new user namespace made",
    WRITE: "nothing outside what was given for writing is changed",
    READ: "nothing outside what was given is read",
    ENV: "no variable of whoever runs the executor crosses unasked",
    NETWORK: "nothing of the network is reached that was not opened, this machine included",
    ADDRESS: "of the network, the opened addresses are reached and no others",
    TARGET: "of the network, the opened names are reached and no others, also where names share an address",
    LIMITS: "the limits that the scene asks for are kept",
    LIFETIME: "nothing of a command lives once it is said to have ended",
}
