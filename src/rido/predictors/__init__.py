"""What predicts the rest of a return, as a control variate: value functions given, learned by the agent, or fitted.

May import simulators and everything below them. A new kind of critic is one more subclass of
:class:`rido.predictors.base.Critic`; :mod:`rido.predictors.selection` decides which one is used.
"""
