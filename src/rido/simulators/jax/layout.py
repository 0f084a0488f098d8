"""Sizes that programs are compiled for: slots that run in lockstep, and tiles of memory for what they return."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.integer[Any]]

_CPU_SLOTS = (32, 1024)
_GPU_SLOTS = tuple(round(1024 * 2 ** (k / 3) / 64) * 64 for k in range(31))  # 1,024 to 1,048,576
# What a step costs however few slots there are, as a number of slots. H200: 50,000 for Pendulum, 5,000 for Brax's ant.
_CPU_LATENCY, _GPU_LATENCY, _HEAVY_LATENCY = 64, 49152, 8192
_GPU_BLOCK_COST = 1 << 22  # what a block costs the host, as steps of a slot: about 1 ms for Pendulum on an H200
_HEAVY = 512  # bytes of a state from which on a step is heavy, as that of a body with joints
_GPU_IN_TIME_OF_ONE = 8192  # trajectories; between what Brax's ant and Pendulum have on an H200
_GPU_LANES = 256  # so that few are idle, however many policies there are, and programs are compiled once for all
_GPU_STRIDE = 3  # sizes of slots by factors of 2
_NARROWING = 8  # slots over those that go on when few trajectories are left
_EQUAL = 0.99  # share of trajectories with the longest length at which all are taken to have it
_WORTH = 0.6  # time of a step, over that with the slots before, at which to go on with fewer slots
_BLOCKS = 16  # blocks of steps in a trajectory of full length, on a CPU
_NARROW = 65536  # slots below which a GPU is not busy, and blocks are long
_NARROW_STEPS, _WIDE_STEPS, _SHORT_STEPS = 64, 8, 4  # steps of a block at most, on a GPU
_SHORT = 16  # mean length of trajectories up to which blocks are short
_TILE_CELLS = 1 << 24  # of a tile that holds many trajectories
_LEAST_COLUMNS, _COMPACT_COLUMNS = 1024, 32
PART = 4096  # columns of a tile that are side by side, for products of matrices of this size
_ROOM = 1 << 18, 1 << 12  # cells and trajectories to allocate for at least, so that few sizes are compiled


@dataclass(frozen=True)
class Device:
    """What suits a type of device.

    Attributes:
        slots: numbers of slots, ascending; each one that is used is compiled.
        latency: what a step costs however few slots there are, as a number of slots; for light and for heavy steps.
        blocks: blocks of steps in a trajectory of full length; None for blocks of a fixed number of steps.
        block_cost: what a block of light steps costs at least, as steps of a slot.
        narrow: slots below which it is not busy, and blocks of a fixed number of steps are long.
        in_time_of_one: trajectories that take about as long together as one alone; 0 if one after the other is as fast.
        stride: every so many-th number of slots is used where each would be compiled for little.
        lanes: lanes for several policies that run together, at least; see :mod:`rido.simulators.jax.together`.
        tail: slots that go on when few trajectories are left; None for a fixed share of those before.
    """

    slots: tuple[int, ...]
    latency: tuple[int, int]
    blocks: int | None = None
    block_cost: int = 0
    narrow: int = _NARROW
    in_time_of_one: int = 0
    stride: int = 1
    lanes: int = 1
    tail: int | None = None

    @staticmethod
    def default(num_envs: int | None) -> Device:
        """Returns what suits JAX's default device, with at most ``num_envs`` slots."""
        on_cpu = jax.default_backend() == "cpu"
        slots = _CPU_SLOTS if on_cpu else _GPU_SLOTS
        if num_envs is not None:
            slots = (*(size for size in slots if size < num_envs), min(num_envs, slots[-1]))
        if on_cpu:
            return Device(slots, (_CPU_LATENCY, _CPU_LATENCY), _BLOCKS)
        wide = min(_GPU_IN_TIME_OF_ONE, slots[-1])
        latency = _GPU_LATENCY, _HEAVY_LATENCY
        return Device(
            slots, latency, block_cost=_GPU_BLOCK_COST, in_time_of_one=wide, stride=_GPU_STRIDE, lanes=_GPU_LANES
        )

    def in_lanes(self, lanes: int) -> Device:
        """Returns what suits each of so many lanes, which share the device."""
        slots = tuple(dict.fromkeys(max(1, size // lanes) for size in self.slots[:: self.stride]))
        light, heavy = (max(1, latency // lanes) for latency in self.latency)
        least, narrow = self.block_cost // lanes, max(1, self.narrow // lanes)
        tail = max(slots[0], self.in_time_of_one // lanes)  # what the first round of a comparison has
        return replace(self, slots=slots, latency=(light, heavy), block_cost=least, narrow=narrow, tail=tail)

    def steps(self, slots: int, planned: Counts, size: int = 0) -> int:
        """Returns the steps of a block: few blocks where a step takes no time, short ones where trajectories wait."""
        if self.blocks:
            return -(-len(planned) // self.blocks)
        short = slots < planned[0] and int(planned.sum()) <= _SHORT * int(planned[0])
        most = _SHORT_STEPS if short else _WIDE_STEPS
        if slots < self.narrow and size < _HEAVY:
            most = _NARROW_STEPS
        return -(-len(planned) // -(-len(planned) // most))

    def choose_slots(self, planned: Counts, size: int = 0, whole: int | None = None) -> int:
        """Returns the number of slots with which trajectories are expected to take the least time.

        It depends on sizes alone and not on measured times, so that the same request gives the same bits.

        Args:
            planned: how many trajectories take each step.
            size: of a slot, in bytes.
            whole: as in :meth:`rido.simulators.base.SummarisingSimulator.summarise`. Then slots are as many as the
                whole evaluation would have, or as its tail.
        """
        sizes = self.slots
        if whole is not None:
            wide = self.choose_slots(np.full(len(planned), whole), size)
            sizes = tuple(dict.fromkeys((self.tail_slots(wide, size), wide)))
        return sizes[int(np.argmin([self._cost(slots, planned, size) for slots in sizes]))]

    def tail_slots(self, slots: int, size: int) -> int:
        """Returns the number of slots to go on with when few trajectories run and no others wait.

        There is one such number for each, and not one for each number of trajectories that are left: how many these
        are differs from policy to policy, and nothing should be compiled for the next one.
        """
        latency, most = self.latency[size >= _HEAVY], slots // _NARROWING if self.tail is None else self.tail
        fewer = max((each for each in self.slots if each <= most), default=slots)
        return fewer if latency + fewer <= _WORTH * (latency + slots) else slots

    def fewer_slots(self, slots: int, running: int, size: int) -> int:
        """Returns the number of slots to go on with when so many trajectories run and no others wait."""
        fewer = self.tail_slots(slots, size)
        return fewer if running <= fewer else slots

    def _cost(self, slots: int, planned: Counts, size: int) -> float:
        """Returns the time that all trajectories take at most, the longest first, in steps of a single slot.

        Steps in lockstep until the last trajectory begins are at most those of Graham's bound. Those that the longest
        take after it are taken by fewer slots. Trajectories of one length run in waves, the last of which has the rest.
        """
        block = self.steps(slots, planned, size)  # a slot that is free waits for the next block
        last, count = int(np.count_nonzero(planned)) - 1, int(planned[0])
        longest, shortest = (-(-int(length) // block) * block for length in lengths_of(planned, [0, count - 1]))
        if count <= slots:
            steps, left = float(longest), planned[longest:longest]
        elif planned[last] >= _EQUAL * count:
            waves = (count - 1) // slots
            steps, left = float(waves * longest), np.full(longest // block, count - waves * slots)
        else:
            steps = float(planned[::block].sum()) * block / slots + shortest
            left = planned[int(steps) : longest : block]
        latency, least = (self.latency[1], 0) if size >= _HEAVY else (self.latency[0], self.block_cost)
        cost = steps * max(latency + slots, least / block)
        for running in left.tolist():
            fewer = self.fewer_slots(slots, running, size)
            cost += block * max(latency + fewer, least / self.steps(fewer, planned, size))
        return cost


@dataclass(frozen=True)
class Layout:
    """Where the numbers of trajectories are put: tiles, each with a row for each step and a column for a trajectory.

    In memory a tile is an array of shape (parts, rows, columns of a part), with at most ``PART`` columns in a part.
    Trajectories are sorted, the longest first, so that later tiles have fewer rows. Numbers of rows and columns are
    a few only, for programs are compiled for them.

    Attributes:
        first: number of the first trajectory of each tile.
        rows: rows of each tile.
        columns: columns of each tile.
        compact: whether to save memory, at the price of more sizes: observations are larger than rewards.
        room: cells and trajectories to allocate for at least.
    """

    first: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    compact: bool = False
    room: tuple[int, int] = field(default=_ROOM, repr=False)

    @staticmethod
    def of(planned: Counts, *, compact: bool = False, whole: int | None = None) -> Layout:
        """Lays trajectories out.

        Args:
            planned: how many trajectories take each step.
            compact: whether to save memory.
            whole: as in :meth:`Device.choose_slots`; there is room for as many, whatever is planned.

        Example:
            >>> Layout.of(np.array([5000, 3000, 0]))
            Layout(first=(0,), rows=(2,), columns=(8192,), compact=False)
        """
        horizon, count = len(planned), int(planned[0])
        tiles, first = [], 0
        least, room = (_COMPACT_COLUMNS, (1, 1)) if compact else (_LEAST_COLUMNS, _ROOM)
        if whole is not None:
            together = Layout.of(np.full(horizon, whole))
            least, room = together.columns[0], (together.cells, together.trajectories)
        while first < count:
            # Few trajectories have all rows: these cost little, and each number of rows is compiled.
            rows, longest = horizon, int(lengths_of(planned, first)) if count > least else horizon
            while (half := -(-rows // 2)) >= longest and half < rows:
                rows = half
            columns = _power_of_two(count - first, least=least)
            columns = min(columns, max(_LEAST_COLUMNS, 1 << (_TILE_CELLS // rows).bit_length() - 1))
            tiles.append((first, rows, columns))
            first += columns
        firsts, all_rows, all_columns = zip(*tiles, strict=True)
        return Layout(firsts, all_rows, all_columns, compact, room)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Cells before each tile, and in all."""
        sizes = (rows * columns for rows, columns in zip(self.rows, self.columns, strict=True))
        return tuple(np.cumsum([0, *sizes]).tolist())

    @property
    def cells(self) -> int:
        """Cells to allocate."""
        return _power_of_two(self.offsets[-1], least=self.room[0])

    @property
    def trajectories(self) -> int:
        """Trajectories to allocate for."""
        return _power_of_two(self.first[-1] + self.columns[-1], least=self.room[1])

    def tables(self) -> NDArray[np.int32]:
        """Returns first trajectory, offset, rows and columns of each tile, as programs take them."""
        size = _power_of_two(len(self.first), least=16)
        table = np.full((4, size), np.iinfo(np.int32).max, dtype=np.int32)
        table[:, : len(self.first)] = self.first, self.offsets[:-1], self.rows, self.columns
        return table

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Yields first trajectory, offset, rows and columns of each tile."""
        return zip(self.first, self.offsets, self.rows, self.columns, strict=False)


class Forecast:
    """How many slots are free after each block, if no trajectory ends early.

    Args:
        planned: how many trajectories take each step.
        slots: number of slots.
        steps: steps of a block.

    Example:
        >>> forecast = Forecast(np.array([5, 5, 3, 1]), slots=3, steps=2)
        >>> forecast.advance(), forecast.advance()
        (0, 3)
    """

    def __init__(self, planned: Counts, slots: int, steps: int) -> None:
        self._planned, self._slots = planned[::steps].astype(np.int64), slots  # that take part in each block
        self._following = 0
        self._running = np.zeros(len(self._planned) + 1, dtype=np.int64)  # slots that still run for so many blocks
        self.fill()

    @property
    def free(self) -> int:
        """Slots that are free now."""
        return self._slots - int(self._running[1:].sum())

    @property
    def left(self) -> int:
        """Trajectories that have not started."""
        return int(self._planned[0]) - self._following

    def fill(self) -> None:
        """Starts the next trajectories in free slots."""
        started = min(self.free, self.left)
        reached = np.clip(self._planned - self._following, 0, started)  # of those, how many take part in each block
        self._running[1:] += reached - np.append(reached[1:], 0)
        self._following += started

    def advance(self) -> int:
        """Runs a block; returns the number of free slots after it."""
        self._running[:-1] = self._running[1:]
        self._running[-1] = 0
        return self.free


def lengths_of(planned: Counts, index: Any) -> Any:
    """Returns the planned lengths of trajectories by their numbers, the longest first; 0 beyond the last."""
    return np.searchsorted(-planned, -np.asarray(index))


def _power_of_two(number: int, least: int = 1) -> int:
    return max(least, 1 << max(0, number - 1).bit_length())
