"""Torch tensors and numpy arrays: conversion of batches, networks in evaluation mode, sampling from given generators.

Nothing here imports torch by itself: whoever has a network has imported it.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rido.policies.base import Generators

_SEEDS = 2**63 - 1  # torch takes these


def is_module(thing: Any) -> bool:
    """Whether something is a ``torch.nn.Module``."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.nn.Module)


def as_array(thing: Any) -> NDArray[Any]:
    """An array of what a policy returned: an array, a number, a sequence, or a tensor of torch or JAX."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(thing, torch.Tensor):
        thing = thing.detach().cpu()
        thing = (thing.float() if thing.dtype == torch.bfloat16 else thing).numpy()  # numpy has no bfloat16
    return np.asarray(thing)


def as_arrays(batch: Any) -> Any:
    """A batch of tensors as arrays, in new memory."""
    if isinstance(batch, dict):
        return {key: as_arrays(part) for key, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        return tuple(as_arrays(part) for part in batch)
    return as_array(batch).copy()


def call_module(module: Any, observations: Any, **memory: Any) -> Any:
    """Calls a network on arrays, in evaluation mode and without gradients; returns what it returns.

    Observations, and the memory by the names of its parameters, become tensors on its device; floating numbers get its
    dtype, integers stay integers.
    """
    import torch

    tensors = partial(as_tensors, module)
    with torch.no_grad(), evaluation_mode(module):
        return module(tensors(observations), **{name: tensors(batch) for name, batch in memory.items()})


def as_tensors(module: Any, batch: Any) -> Any:
    """A batch of arrays, or None, as tensors on a network's device; floating numbers get the network's dtype."""
    import torch

    if batch is None:
        return None
    if isinstance(batch, dict):
        return {key: as_tensors(module, part) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(as_tensors(module, part) for part in batch)
    first = next((part for part in module.parameters() if part.is_floating_point()), torch.zeros(()))
    tensor = torch.as_tensor(np.array(batch), device=first.device)
    return tensor.to(first.dtype) if tensor.is_floating_point() else tensor


@contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Puts a network into evaluation mode, and each part back into its own mode afterwards; leaves others alone."""
    training = [part for part in module.modules() if part.training] if is_module(module) else []
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def sampling_from(generators: Generators) -> Iterator[None]:
    """Lets torch draw from the generator of one row, if there is one, and leaves its global generators as they were."""
    if not len(generators):
        yield
        return
    import torch

    (generator,) = generators
    seed = int(generator.integers(_SEEDS))
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # the network may draw on the device
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            yield
        return
    before = torch.get_rng_state()  # 100 times faster than fork_rng()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)
