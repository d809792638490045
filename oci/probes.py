"""The addresses that stage 2 sends to in order to feel the egress wall from inside.

None can ever be allowed: they are link-local metadata, the benchmarking range (RFC 2544), a ULA metadata address and
the discard-only prefix (RFC 6666). Stage 2 sends one UDP datagram to each; the ledger's reader subtracts exactly those.
"""

PROBE_PORT = 9
PROBE_ADDRESSES4 = ("169.254.169.254", "198.18.0.1")
PROBE_ADDRESSES6 = ("fd00:ec2::254", "100::1")
