"""The figures of the paper, and the agents that they are drawn with."""
