"""The paper's experiments, every figure and table: :func:`reproduce` and the command ``rido reproduce``."""

from rido.study.paper.claims import Claim
from rido.study.paper.reproduce import SECTIONS, reproduce

__all__ = ["SECTIONS", "Claim", "reproduce"]
