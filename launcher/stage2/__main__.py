"""Stage 2 as a program; the runtime runs its compiled form by path, which spares the 5 ms of importing runpy."""

from launcher.stage2.enter import main

main()
