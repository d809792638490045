"""Stage 2 as a program; the runtime runs its compiled form by path, which spares the 5 ms of importing runpy."""

import gc

gc.disable()  # it makes no garbage worth looking for

from launcher.stage2.enter import main  # noqa: E402 - after the above

main()
