"""Several policies in one program: the device's slots are divided into lanes, each of which belongs to a policy.

A device in lockstep takes as long for a few trajectories as for thousands, and each program that it is given takes its
time on the host. So trajectories of all policies run side by side. Programs are compiled for a fixed number of lanes:
where policies drop out of a comparison, the others get theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rido.simulators.base import Batch
from rido.simulators.jax.collecting import Dealt
from rido.simulators.jax.device import Device
from rido.simulators.jax.programs import Programs, RolloutTask

_LANES = 2  # for each of several policies, at least: more than one, so that few are idle when policies have dropped out
_MOST_BYTES = 1 << 30  # of the policies' arrays in all lanes
_MOST_TRANSITIONS = 1 << 28  # of all policies that run together


class Together:
    """Policies of one structure, whose trajectories run together; ``arrays`` are those of each policy, by its name."""

    def __init__(self, programs: Programs, device: Device, arrays: Mapping[str, tuple[Any, ...]]) -> None:
        self._programs, self._places = programs, {name: place for place, name in enumerate(arrays)}
        self._stacked = tuple(jnp.stack(each) for each in zip(*arrays.values(), strict=True))
        size = sum(array.nbytes for array in self._stacked) // len(arrays)
        wanted = max(device.lanes, _LANES * len(arrays)) if len(arrays) > 1 else 1
        self._lanes = max(len(arrays), min(wanted, _MOST_BYTES // max(1, size)))
        self._device = device.in_lanes(self._lanes)

    def collect(
        self, names: Sequence[str], dealt: Dealt, task: RolloutTask, *, observing: bool = False, total: int = 0
    ) -> dict[str, Batch | Exception]:
        """Returns the trajectories of the first policies, as many as fit into memory, or what went wrong.

        In the task, the policy's arrays, seeds, what is planned and points are replaced.
        """
        names = names[: max(1, _MOST_TRANSITIONS // int(dealt.planned.sum()))]
        number = min(self._lanes // len(names), dealt.order.size)  # lanes of a policy
        seeds, planned, points = dealt.deal(number)
        lane = np.arange(self._lanes)
        idle = lane >= number * len(names)
        owners = np.array([self._places[name] for name in names])[np.where(idle, 0, lane // number)]
        turn = lane % number
        task = task._replace(
            policy=tuple(array[owners] for array in self._stacked),
            seeds=seeds[turn],
            planned=np.where(idle[:, None], 0, planned[turn]),
            points=None if points is None else points[turn],
        )
        record = self._programs.roll_out(self._device, task, observing=observing, total=total // number)
        record = jax.device_get(record)

        def found(place: int) -> Batch | Exception:
            try:
                return dealt.take(record, slice(place * number, (place + 1) * number), self._device.group)
            except Exception as error:  # it is raised when this policy acts
                return error

        return {name: found(place) for place, name in enumerate(names)}
