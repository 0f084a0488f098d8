"""The command line: one module for each of its commands, ``rido evaluate`` and the others.

Every command calls one function of the library and prints a few lines, or one object with ``--json``. The exit status
is 0 for success, 1 for an error (one line on standard error says which), 2 for wrong usage and 130 for an interrupt;
``rido compare --gate`` also ends with 3 for fail and 4 for undecided. With ``--json`` an error is also the object
``{"error": "..."}`` on standard output, with the same exit status. May import every other room; none imports it. A
new command is one more module here, registered in :mod:`rido.cli.commands`; what several commands take is in
:mod:`rido.cli.options`.
"""

from rido.cli.commands import app, main

__all__ = ["app", "main"]
