"""``python -m rido`` is ``rido``."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]  # a module of the working directory must not take the place of an installed one

from rido.cli import main

main()
