"""What acts: functions, torch modules, Stable-Baselines3 agents, agents in npz and ONNX files, and those of rido.

May import core and record (for fingerprints). A loader for another framework's agents is one more module here with a
subclass of :class:`rido.policies.base.Policy`, and a case in :func:`rido.policies.resolve.resolve_policy`.
"""
