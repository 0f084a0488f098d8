"""What acts: functions, Stable-Baselines3 agents, agents in npz files, and those that come with rido.

May import core and storage (for fingerprints). A loader for another framework's agents is one more module here, called
by :func:`rido.policies.base.resolve_policy`.
"""
