"""``python -m rido`` is ``rido``."""

from rido.cli import main

main()
