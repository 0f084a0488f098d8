"""Batches of environments on torch tensors, such as those of Isaac Lab; needs torch."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rido.core import checks
from rido.core.trajectories import Trajectories
from rido.simulators.base import NO_TRAJECTORIES, Batch, Capabilities, Found, Request, SimulationError, Simulator
from rido.simulators.repeatability import GlobalState
from rido.simulators.requests import checked, join


class TorchEnvs(Protocol):
    """Environments that run in lockstep, one in each row of a tensor.

    Attributes:
        num_envs: number of environments.
    """

    num_envs: int

    def reset(self, seeds: torch.Tensor) -> torch.Tensor:
        """Starts all environments; returns their first observations.

        Args:
            seeds: int64, one for each environment, from which all its randomness comes.
        """
        ...

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Takes a step in all environments; returns observations, rewards, and what has terminated or was truncated.

        What comes after a termination is ignored, so environments may reset themselves, or not. A truncation before the
        planned length is an error, because the rewards that belong there are not known.
        """
        ...


class TorchSimulator(Simulator):
    """Rolls a policy out in environments on torch tensors, with :func:`rido.evaluate` as any simulator.

    Trajectories run in batches of ``num_envs``, the longest first, and a batch ends when all of its trajectories are
    over. Rewards stay on the device until then.

    Args:
        envs: the environments.
        policy: from a batch of observations to a batch of actions; it must not draw random numbers.
        horizon: the longest trajectory that will be asked for.
        look_every: steps after which to look whether all trajectories of a batch have terminated, for which a GPU must
            wait.

    Attributes:
        num_envs: trajectories that run together.
    """

    def __init__(
        self,
        envs: TorchEnvs,
        policy: Callable[[torch.Tensor], torch.Tensor],
        *,
        horizon: int,
        look_every: int = 16,
    ) -> None:
        self._envs, self._policy = envs, policy
        self._horizon = checks.integer("horizon", horizon, least=1)
        self._look_every = checks.integer("look_every", look_every, least=1)
        self.num_envs = checks.integer("envs.num_envs", envs.num_envs, least=1)
        self._notes: dict[str, None] = {}  # in the order in which they were found

    @property
    def capabilities(self) -> Capabilities:
        """It returns observations."""
        name, found = type(self._envs).__name__, Found(tuple(self._notes))
        return Capabilities(observes=True, tries=True, lockstep=True, environment=name, found=found)

    def collect(self, request: Request) -> Batch:
        request = checked(request, self._horizon, takes_points=False)
        lengths, seeds = request.lengths, request.seeds
        if request.wants == "starts":
            starts = [self._reset(list(seeds[i : i + self.num_envs])) for i in range(0, len(seeds), self.num_envs)]
            return Batch(NO_TRAJECTORIES, torch.cat(starts)[: len(seeds)].cpu().numpy())
        if request.wants == "trial":
            return Batch(NO_TRAJECTORIES, found=Found(self._check_seeds(seeds)))
        order = np.argsort(-lengths, kind="stable")
        batches = [order[first : first + self.num_envs] for first in range(0, order.size, self.num_envs)]
        before = GlobalState()
        parts = [self._batch(lengths, seeds, rows) for rows in batches]
        self._notes.update(dict.fromkeys(before.notes()))
        return join(parts, order, Found(tuple(self._notes)))

    def _check_seeds(self, seeds: Sequence[int]) -> tuple[str, ...]:
        """Checks that each row starts from its own seed, whichever row it is."""
        one, other = seeds
        orders = [[one, *[other] * (self.num_envs - 1)], [other, *[one] * (self.num_envs - 1)]]
        first, swapped, again = (self._reset(order).clone() for order in (*orders, orders[0]))
        ends = [0, min(1, self.num_envs - 1)]  # two rows, if there are two
        if not (_close(first, again) and (self.num_envs == 1 or _close(first[ends], swapped[ends[::-1]]))):
            return ("the batch does not start each row from its own seed: the result depends on how many rows it has",)
        return ()

    def _reset(self, seeds: list[int]) -> torch.Tensor:
        filled = seeds + [0] * (self.num_envs - len(seeds))
        return self._envs.reset(torch.tensor(filled, dtype=torch.int64))

    @torch.no_grad()
    def _batch(self, lengths: NDArray[np.int64], seeds: Sequence[int], rows: NDArray[np.intp]) -> Batch:
        """Collects the trajectories of some rows of a request."""
        observations = [self._reset([int(seeds[row]) for row in rows])]
        planned = torch.zeros(self.num_envs, dtype=torch.int64)
        planned[: rows.size] = torch.as_tensor(lengths[rows])
        planned = planned.to(observations[0].device)
        steps, over, rewards = torch.zeros_like(planned), planned == 0, []
        cut = torch.zeros_like(over)
        for t in range(int(lengths[rows[0]])):
            told = self._envs.step(self._policy(observations[-1]))
            if not isinstance(told, (tuple, list)) or len(told) != 4:
                found = f"{len(told)} values" if isinstance(told, (tuple, list)) else f"a {type(told).__name__}"
                raise ValueError(
                    "step() of the batch must return observations, rewards, terminated and truncated, which is False "
                    f"everywhere where there is no time limit, got {found}"
                )
            seen, reward, terminated, truncated = told
            observations.append(seen.clone())
            rewards.append(torch.where(over | (planned <= t), 0.0, reward.double()))
            steps += ~over & (planned > t)
            cut |= truncated.bool() & ~terminated.bool() & ~over & (planned > t + 1)
            over |= (terminated.bool() | cut) & (planned > t)
            if (t + 1) % self._look_every == 0 and bool((over | (planned <= t + 1)).all()):
                break
        taken, ended, short = (tensor.cpu().numpy()[: rows.size] for tensor in (steps, over, cut))
        if short.any():
            row = int(np.flatnonzero(short)[0])
            length = lengths[rows[row]]
            raise SimulationError(
                int(rows[row]),
                int(taken[row]) - 1,
                int(seeds[rows[row]]),
                f"the batch's time limit cut it before its planned length of {length} steps: make the limit longer, "
                "ask for a shorter horizon, or return it as terminated where it ends the episode",
            )
        numbers = torch.stack(rewards, dim=1).cpu().numpy()[: rows.size]
        if not np.isfinite(numbers).all():
            row, step = (int(place[0]) for place in np.nonzero(~np.isfinite(numbers)))
            raise SimulationError(int(rows[row]), step, int(seeds[rows[row]]), f"the reward is {numbers[row, step]}")
        flat = np.zeros((rows.size, int(lengths[rows[0]])))
        flat[:, : numbers.shape[1]] = numbers
        stacked = torch.stack(observations, dim=1).cpu().numpy()[: rows.size]
        reached = np.arange(stacked.shape[1]) <= taken[:, None]
        return Batch(Trajectories(flat, lengths[rows], taken), stacked[reached], ended)


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one.double(), other.double(), rtol=1e-5, atol=1e-6, equal_nan=True)
