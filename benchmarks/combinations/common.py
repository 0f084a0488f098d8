"""Agents of each framework, untrained: what they share.

Each function of the modules beside this one takes an environment and returns a pair. The first is what
``rido.evaluate`` gets, as docs/recipes.md says. The second is a function ``act(observation, first)`` for a plain loop
around the framework's own call, where ``first`` is whether an episode begins. Neither knows of the other.
"""

import tempfile
from pathlib import Path

import numpy as np

FOLDER = Path(tempfile.mkdtemp(prefix="combinations-"))


def seeded_torch():
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    return torch


def perturb(module, seed=0, scale=1.0):
    """Moves weights away from their start, at which many agents act the same whatever they see."""
    torch = seeded_torch()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():  # no biases: a small one decides for one action in most states
            noise = torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5
            parameter.copy_(scale * noise if parameter.ndim > 1 else 0 * noise)
    return module


def mlp(env, outputs=None, bounded=False):
    torch = seeded_torch()
    inputs = int(np.prod(env.observation_space.shape))
    outputs = outputs or (env.action_space.shape[0] if env.action_space.shape else int(env.action_space.n))
    layers = [torch.nn.Flatten(), torch.nn.Linear(inputs, 32), torch.nn.Tanh(), torch.nn.Linear(32, outputs)]
    return perturb(torch.nn.Sequential(*layers, *([torch.nn.Tanh()] if bounded else [])))
