"""Sizes that programs are compiled for: slots that run in lockstep, blocks of steps, and memory for what they return.

They follow from the budget and from the type of device, never from what a policy does or from measured times. So the
same request gives the same bits, and the next policy of the same shape compiles nothing.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.integer[Any]]

_CPU_WIDTH, _GPU_WIDTH = 1 << 10, 1 << 20
# What a step costs however few slots there are, as a number of slots. H200: 50,000 for Pendulum, 5,000 for Brax's ant.
_CPU_LATENCY, _GPU_LATENCY, _HEAVY_LATENCY = 64, 49152, 8192
_HEAVY = 512  # bytes of a slot from which on a step is heavy, as that of a body with joints
_GPU_IN_TIME_OF_ONE = 8192  # trajectories; between what Brax's ant and Pendulum have on an H200
_GPU_LANES = 256  # so that few are idle, however many policies there are, and programs are compiled once for all
_CPU_NARROWING, _GPU_NARROWING, _LANE_NARROWING = 32, 8, 4  # slots over those that go on with few trajectories
_LANE_SPACING = 2  # numbers of slots of a lane are these powers: all policies of a comparison have the same
_LEAST = 16  # latency over the fewest slots that are worth a program
_BLOCKS = 16  # blocks of steps in a trajectory of full length, on a CPU
_NARROW = 65536  # slots below which a GPU is not busy, and blocks are long
_NARROW_STEPS, _WIDE_STEPS = 64, 4  # steps of a block at most, on a GPU
_SLOTS_PER_GROUP, _GROUPS = 128, (32, 4096)  # slots over trajectories of a group, and how many these are
_ROOM = 4  # memory is allocated for a least number times a power of this, so that few sizes are compiled


@dataclass(frozen=True)
class Device:
    """What suits a type of device.

    Attributes:
        width: slots at most.
        latency: what a step costs however few slots there are, as a number of slots; for light and for heavy steps.
        narrowing: slots over those that go on when few trajectories are left.
        spacing: slots over the next smaller number of slots that requests may begin with.
        blocks: blocks of steps in a trajectory of full length; None for blocks of a fixed number of steps.
        in_time_of_one: trajectories that take about as long together as one alone; 0 if one after the other is as fast.
        lanes: lanes for several policies that run together, at least; see :mod:`rido.simulators.jax.collecting`.
    """

    width: int
    latency: tuple[int, int]
    narrowing: int = _GPU_NARROWING
    spacing: int = _GPU_NARROWING
    blocks: int | None = None
    in_time_of_one: int = 0
    lanes: int = 1

    @property
    def group(self) -> int:
        """Trajectories whose rewards of a step are side by side in memory, as slots write them."""
        return min(max(self.width // _SLOTS_PER_GROUP, _GROUPS[0]), _GROUPS[1])

    @staticmethod
    def default(num_envs: int | None) -> "Device":
        """Returns what suits JAX's default device, with at most ``num_envs`` slots."""
        on_cpu = jax.default_backend() == "cpu"
        most = _CPU_WIDTH if on_cpu else _GPU_WIDTH
        width = most if num_envs is None else min(num_envs, most)
        if on_cpu:
            return Device(width, (_CPU_LATENCY, _CPU_LATENCY), _CPU_NARROWING, _CPU_NARROWING, _BLOCKS)
        wide = min(_GPU_IN_TIME_OF_ONE, width)
        return Device(width, (_GPU_LATENCY, _HEAVY_LATENCY), in_time_of_one=wide, lanes=_GPU_LANES)

    def in_lanes(self, lanes: int) -> "Device":
        """Returns what suits each of several lanes, which share the device."""
        light, heavy = (max(1, latency // lanes) for latency in self.latency)
        shared = replace(self, width=max(1, self.width // lanes), latency=(light, heavy))
        return shared if lanes == 1 else replace(shared, narrowing=_LANE_NARROWING, spacing=_LANE_SPACING)

    def ladder(self, size: int, trajectories: int = 0) -> tuple[int, ...]:
        """Returns the numbers of slots of an evaluation that pays for this many full-length trajectories, descending.

        ``size`` is that of a slot, in bytes.

        Example:
            >>> Device(1024, latency=(64, 8)).ladder(0), Device(1024, latency=(64, 8)).ladder(0, 500)
            ((1024, 128, 16), (512, 64, 8))
        """
        slots, least = [min(_three_bits(trajectories), self.width) if trajectories else self.width], self._least(size)
        while (fewer := slots[-1] // self.spacing) >= least:
            slots.append(fewer)
        return tuple(slots)

    def _least(self, size: int) -> int:
        return max(1, self.latency[size >= _HEAVY] // _LEAST)

    def slots(self, planned: Counts, size: int, trajectories: int = 0) -> tuple[int, ...]:
        """Returns the number of slots to begin with, and the one to go on with when few trajectories are left."""
        latency, running = self.latency[size >= _HEAVY], planned[planned > 0]
        ladder = self.ladder(size, trajectories)
        if trajectories:  # two sizes serve all requests of an evaluation, so that the next policy compiles nothing
            ladder = ladder[:2]

        def fewer(slots: int) -> int:
            tail = slots // self.narrowing
            return tail if tail >= self._least(size) and not (trajectories and slots < ladder[0]) else 0

        def cost(slots: int) -> float:
            waves, rest = np.divmod(running, slots)
            last = np.where(rest > fewer(slots), slots, fewer(slots))
            return float(np.sum(waves * (latency + slots) + (rest > 0) * (latency + last)))

        slots = min(reversed(ladder), key=cost)
        return (slots, fewer(slots)) if fewer(slots) else (slots,)

    def steps(self, slots: int, horizon: int, size: int) -> int:
        """Returns the steps of a block; trajectories end at any step, but others begin between blocks."""
        if self.blocks:
            return -(-horizon // self.blocks)
        most = _NARROW_STEPS if slots < _NARROW and size < _HEAVY else _WIDE_STEPS
        return -(-horizon // -(-horizon // most))


def room(needed: int, least: int) -> int:
    """Returns the size of an array for a number of entries.

    Example:
        >>> room(5, 16), room(65, 16)
        (16, 256)
    """
    size = least
    while size < needed:
        size *= _ROOM
    return size


def lengths_of(planned: Counts, index: Any) -> Any:
    """Returns the planned lengths of trajectories by their numbers, the longest first; 0 beyond the last."""
    return np.searchsorted(-planned, -np.asarray(index))


def _three_bits(number: int) -> int:
    """Returns a number rounded up to three binary digits after the first, so that few sizes are compiled."""
    unit = 1 << max(0, number.bit_length() - 4)
    return -(-number // unit) * unit
