"""The paper's experiments, every figure and table: :func:`reproduce` and the command ``rido reproduce``."""

from rido.paper.claims import Claim
from rido.paper.reproduce import SECTIONS, reproduce

__all__ = ["SECTIONS", "Claim", "reproduce"]
