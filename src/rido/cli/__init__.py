"""The command line: ``rido evaluate``, ``compare``, ``plan``, ``report``, ``reproduce`` and ``envs``.

Every command does what one function of the library does and prints a few lines, or with ``--json`` one object. It ends
with 0 when it is done, 1 when it cannot be done (one line on standard error says why) and 2 when it was called wrongly.
"""

from rido.cli.commands import app, main

__all__ = ["app", "main"]
