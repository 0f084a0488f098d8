"""The paper's experiments, every figure and table: :func:`reproduce` and the command ``rido reproduce``.

May import every room but the command line and integrations, and only the command line imports it. A new experiment is
a section in :mod:`rido.paper.reproduce`, with its claims in :mod:`rido.paper.claims`.
"""

from rido.paper.claims import Claim
from rido.paper.reproduce import SECTIONS, reproduce

__all__ = ["SECTIONS", "Claim", "reproduce"]
