"""What acts: functions, torch modules, Stable-Baselines3 agents, agents in npz and ONNX files, and those of rido.

May import core and record (for fingerprints). Another file type is one more module here with a subclass of
:class:`rido.policies.base.Policy`, and a row in :data:`rido.policies.loaders.LOADERS`. What is not a file has a case in
:func:`rido.policies.resolve.resolve_policy`.
"""
