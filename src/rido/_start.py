"""Imported first: where modules come from, and what interrupts and closed streams do, while ``rido`` starts."""

import os
import signal
import sys
from typing import NoReturn

INTERRUPTED = 130
"""Exit status of a command that was interrupted, as of other programs."""

# While a package is imported for -m, the first argument is "-m"; the module's name stands before the others.
_AS_MODULE = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == "rido"

if _AS_MODULE and not sys.flags.safe_path:  # the working directory must not come before installed modules
    del sys.path[0]


def stop(*_: object) -> NoReturn:
    """Ends the process at once: there is nothing to keep before a command begins and after it ends."""
    os.write(2, b"rido: stopped\n")
    os._exit(INTERRUPTED)


if _AS_MODULE or os.path.basename(sys.argv[0] if sys.argv else "").removesuffix(".exe") == "rido":
    for _name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if (_number := getattr(signal, _name, None)) and signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, stop)
    for _number, _name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, _name) is None:  # it is closed: the next file that is opened would take its place
            os.dup2(os.open(os.devnull, os.O_RDWR), _number)
            setattr(sys, _name, open(_number, "w" if _number else "r", closefd=False))  # noqa: SIM115
