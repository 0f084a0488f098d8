"""Imported first: under ``python -m rido`` the working directory must not come before installed modules."""

import sys

# While a package is imported for -m, the first argument is "-m"; the module's name stands before the others.
if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)] == "rido" and not sys.flags.safe_path:
    del sys.path[0]
