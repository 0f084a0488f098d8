"""Off-policy agents on Pendulum, trained for half a minute each, so that some of them are far from good."""

import os
from pathlib import Path

STEPS = 5_000  # of training, with networks of two hidden layers of 64


def trained(name, folder):
    """The zip of an agent of Stable-Baselines3 or sb3-contrib, trained when it is first asked for."""
    path = Path(folder) / f"{name}.zip"
    if not path.exists():
        import sb3_contrib
        import stable_baselines3
        import torch

        torch.set_num_threads(1)
        algorithm = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
        settings = dict(learning_rate=1e-3, learning_starts=500, policy_kwargs={"net_arch": [64, 64]})
        model = algorithm("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", **settings).learn(STEPS)
        part = path.with_name(f"{name}-{os.getpid()}.zip")  # another process may train the same one
        model.save(part)
        part.replace(path)
    return path
