"""Trajectories as they were asked for: dealt out to lanes of the device, and taken from what these return.

The device's slots are divided into lanes, each of which belongs to a policy. A device in lockstep takes as long for a
few trajectories as for thousands, and each program that it is given takes its time on the host. So trajectories of all
policies run side by side. Programs are compiled for a fixed number of lanes: where policies drop out of a comparison,
the others get theirs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from rido.core.trajectories import Trajectories, count_reached, positions, starts_of
from rido.simulators.base import Batch, Request, SimulationError
from rido.simulators.jax.device import Device, room
from rido.simulators.jax.programs import Programs, Record, RolloutTask
from rido.simulators.jax.seeds import split_seeds

_LEAST_SEEDS = 1024  # that all lanes together take, so that few sizes are compiled
_LANES = 2  # for each of several policies, at least: more than one, so that few are idle when policies have dropped out
_MOST_BYTES = 1 << 30  # of the policies' arrays in all lanes
_MOST_TRANSITIONS = 1 << 28  # of all policies that run together


class Dealt:
    """Trajectories of one policy, dealt out to one or more lanes of the device, the longest first."""

    def __init__(self, request: Request, horizon: int) -> None:
        self._lengths, self._seeds, self._points = request.lengths, request.seeds, request.points
        self.order = np.argsort(-self._lengths, kind="stable")
        self.planned = count_reached(self._lengths, horizon)
        self._cells: dict[int, NDArray[np.int64]] = {}  # of all rewards in the record, by the number of lanes

    def deal(self, lanes: int) -> tuple[NDArray[np.uint32], NDArray[np.int32], NDArray[np.float32] | None]:
        """Returns what each lane gets: seeds, how many trajectories take each step, and points."""
        turns = np.arange(lanes)[:, None]
        planned = (self.planned - turns + lanes - 1) // lanes
        size = room(int(planned[0, 0]), max(16, _LEAST_SEEDS // lanes))
        rows = self.order[(turns + lanes * np.arange(size)) % self.order.size]
        points = None
        if self._points is not None:  # in single precision all coordinates are less than 1 too
            single = np.minimum(self._points.astype(np.float32), np.nextafter(np.float32(1), np.float32(0)))
            points = single[rows]
        return split_seeds(self._seeds)[rows], planned.astype(np.int32), points

    def take(self, record: Record, lanes: slice, group: int) -> Batch:
        """Returns the trajectories of some lanes, from a record on the host, in the order of the request."""
        lengths, number = self._lengths, lanes.stop - lanes.start
        lane, index = np.divmod(np.argsort(self.order), number)[::-1]
        rewards, ends = np.asarray(record.numbers[0])[lanes], np.asarray(record.ends)[lanes]
        steps = np.minimum(ends[lane, index], lengths)
        if number not in self._cells:
            first = lane * rewards.shape[1] + self._places(number, group)[lane, index]
            self._cells[number] = np.repeat(first, lengths) + group * positions(lengths)
        flat: NDArray[np.float64] = rewards.reshape(-1)[self._cells[number]].astype(np.float64)
        if not np.isfinite(flat).all():
            cell, firsts = int(np.argmin(np.isfinite(flat))), starts_of(lengths)
            row = int(np.searchsorted(firsts, cell, side="right")) - 1
            reason = f"the reward is {flat[cell]}"
            raise SimulationError(row, cell - int(firsts[row]), int(self._seeds[row]), reason)
        trajectory, step = np.repeat(np.arange(steps.size), steps + 1), positions(steps + 1)
        later = (starts_of(lengths)[trajectory] + step - 1)[step > 0]

        def lay_out(first: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
            laid = np.empty((step.size, *seen.shape[2:]), seen.dtype)
            laid[step == 0] = first[lanes][lane, index]
            laid[step > 0] = seen[lanes].reshape(-1, *seen.shape[2:])[self._cells[number][later]]
            return laid

        trajectories = Trajectories.from_flat(flat, lengths, steps, copy=False)
        observations = None if record.first is None else jax.tree.map(lay_out, record.first, record.seen)
        return Batch(trajectories, observations, ends[lane, index] <= lengths)

    def _places(self, lanes: int, group: int) -> NDArray[np.int64]:
        """Returns the places of the first rewards of the trajectories of each lane, as :func:`places` does."""
        found = np.zeros((lanes, -(-self.order.size // lanes)), dtype=np.int64)
        for turn in range(lanes):
            own = self._lengths[self.order[turn::lanes]]
            groups = group * starts_of(own[::group])
            found[turn, : own.size] = np.repeat(groups, group)[: own.size] + np.arange(own.size) % group
        return found


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
