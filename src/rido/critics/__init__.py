"""Critics: value functions as control variates, given by the user, learned by the agent, or fitted on the data.

May import simulators and everything below them. A new kind of critic is one more subclass of
:class:`rido.critics.base.Critic`; :mod:`rido.critics.selection` decides which one is used.
"""
