"""Environments on torch tensors against Gymnasium's own, step by step."""

import numpy as np
import pytest

pytest.importorskip("torch", reason='torch is missing: pip install "rido[sb3]"')

import gymnasium as gym
import torch

import rido
from rido.simulators import Request, SimulationError, trajectory_seeds
from rido.simulators.gymnasium import GymnasiumSimulator
from rido.simulators.torch import TorchSimulator


class TorchPendulum:
    """Gymnasium's Pendulum-v1 on tensors, with its starts, in double precision; ends at a speed, if there is one.

    With a time limit it starts again, by itself, when that has passed, as Isaac Lab does.
    """

    def __init__(self, num_envs, most_speed=None, limit=None):
        self.num_envs, self.most_speed, self.limit = num_envs, most_speed, limit

    def reset(self, seeds):
        env = gym.make("Pendulum-v1").unwrapped
        starts = []
        for seed in seeds.tolist():
            env.reset(seed=seed)
            starts.append(env.state)
        self.angle, self.speed = torch.tensor(np.array(starts)).T
        self.seeds, self.age = seeds, 0
        return self.observe()

    def observe(self):
        return torch.stack([torch.cos(self.angle), torch.sin(self.angle), self.speed], dim=1).float()

    def step(self, actions):
        torque = actions[:, 0].double().clip(-2, 2)
        upright = (self.angle + torch.pi) % (2 * torch.pi) - torch.pi
        rewards = -(upright**2 + 0.1 * self.speed**2 + 0.001 * torque**2)
        self.speed = (self.speed + (15 * torch.sin(self.angle) + 3 * torque) * 0.05).clip(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        terminated = self.speed.abs() > (np.inf if self.most_speed is None else self.most_speed)
        self.age += 1
        truncated = torch.full_like(terminated, self.age == self.limit)
        if self.age == self.limit:
            self.reset(self.seeds + 1)
        return self.observe(), rewards, terminated, truncated


def swing(observations):
    return 2 * torch.tanh(observations[:, 2:] - 3 * observations[:, 1:2])


def swing_numpy(observations):
    return swing(torch.as_tensor(observations)).numpy()


def test_trajectories_are_those_of_gymnasium():
    lengths, seeds = np.array([5, 40, 1, 40, 17, 3, 29]), trajectory_seeds(1, 0, 7)
    ours = TorchSimulator(TorchPendulum(3), swing, horizon=40).observe(lengths, seeds)
    theirs = GymnasiumSimulator("Pendulum-v1", swing_numpy, horizon=40).observe(lengths, seeds)
    np.testing.assert_allclose(ours.trajectories.rewards, theirs.trajectories.rewards, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours.observations, theirs.observations, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        TorchSimulator(TorchPendulum(3), swing, horizon=40).starts(seeds)[:2], theirs.observations[[0, 6]], rtol=1e-6
    )


def test_early_ends_do_not_depend_on_the_batch():
    lengths, seeds = np.array([30, 30, 12, 30, 25]), trajectory_seeds(2, 0, 5)
    one, other = (
        TorchSimulator(TorchPendulum(number, 3.0), swing, horizon=30, look_every=4).observe(lengths, seeds)
        for number in (1, 8)
    )
    np.testing.assert_array_equal(one.trajectories.rewards, other.trajectories.rewards)
    np.testing.assert_array_equal(one.trajectories.steps, other.trajectories.steps)
    np.testing.assert_array_equal(one.terminated, other.terminated)
    assert one.terminated.any() and (one.trajectories.steps < lengths).any()
    speeds = np.abs(one.observations[:, 2])
    ends = np.cumsum(one.trajectories.steps + 1) - 1
    np.testing.assert_array_equal(speeds[ends] > 3, one.terminated)


def test_it_is_evaluated_as_any_simulator():
    """Within 4.5 standard errors of Gymnasium's; one false alarm in 150,000."""
    simulator = TorchSimulator(TorchPendulum(64), swing, horizon=50)
    ours = rido.evaluate(simulator, gamma=0.95, horizon=50, budget=6000, seed=1)
    theirs = rido.evaluate("Pendulum-v1", swing_numpy, gamma=0.95, horizon=50, budget=6000, seed=2)
    assert abs(ours.value - theirs.value) < 4.5 * np.hypot(ours.standard_error, theirs.standard_error)
    assert ours.transitions == 6000 and ours.reproducible


def test_a_bad_reward_names_its_trajectory():
    class Bad(TorchPendulum):
        def step(self, actions):
            observations, rewards, *ends = super().step(actions)
            return observations, torch.where(self.speed > 1, torch.nan, rewards), *ends

    with pytest.raises(SimulationError, match=r"failed at step \d+ \(seed \d+\): the reward is nan"):
        TorchSimulator(Bad(4), swing, horizon=30).rollout(np.full(4, 30), trajectory_seeds(0, 0, 4))


def test_the_episode_after_a_time_out_is_not_summed():
    seeds = trajectory_seeds(3, 0, 5)
    whole = TorchSimulator(TorchPendulum(4, limit=20), swing, horizon=20).rollout(np.full(5, 20), seeds)
    theirs = GymnasiumSimulator("Pendulum-v1", swing_numpy, horizon=20).rollout(np.full(5, 20), seeds)
    np.testing.assert_allclose(whole.rewards, theirs.rewards, rtol=1e-4, atol=1e-4)
    simulator = TorchSimulator(TorchPendulum(4, limit=20), swing, horizon=30)
    with pytest.raises(SimulationError, match="time limit cut it before its planned length of 25 steps") as caught:
        simulator.rollout(np.array([20, 7, 25, 20, 20]), seeds)
    assert (caught.value.trajectory, caught.value.step, caught.value.seed) == (2, 19, seeds[2])


def test_a_time_out_behind_a_termination_does_not_matter():
    lengths, seeds = np.full(6, 30), trajectory_seeds(2, 0, 6)
    limited, free = (TorchPendulum(3, most_speed=0.5, limit=limit) for limit in (29, None))
    ours, theirs = (TorchSimulator(envs, swing, horizon=30).rollout(lengths, seeds) for envs in (limited, free))
    assert (ours.steps < 29).all()
    np.testing.assert_array_equal(ours.rewards, theirs.rewards)


def test_a_step_without_truncated_is_refused():
    class Old(TorchPendulum):
        def step(self, actions):
            return super().step(actions)[:3]

    with pytest.raises(
        ValueError, match=r"must return observations, rewards, terminated and truncated, .* got 3 values"
    ):
        TorchSimulator(Old(4), swing, horizon=30).rollout(np.full(4, 30), trajectory_seeds(0, 0, 4))


class OneSeed(TorchPendulum):
    def reset(self, seeds):
        return super().reset(seeds[0] + torch.arange(len(seeds)))


class Noisy(TorchPendulum):
    """Takes one seed too, but for what it draws in steps alone."""

    def reset(self, seeds):
        torch.manual_seed(int(seeds[0]))
        return super().reset(torch.zeros_like(seeds))

    def step(self, actions):
        return super().step(actions + torch.randn(actions.shape))


@pytest.mark.parametrize(
    ("kind", "note"),
    [(OneSeed, "does not start each row from its own seed"), (Noisy, "global random numbers of torch")],
)
def test_one_seed_for_all_rows_is_not_reproducible(kind, note):
    for rows in (2, 8):
        found = rido.evaluate(TorchSimulator(kind(rows), swing, horizon=10), gamma=0.9, horizon=10, budget=400, seed=1)
        assert not found.reproducible and any(note in warning for warning in found.warnings)
    assert (
        TorchSimulator(TorchPendulum(1), swing, horizon=10).collect(Request(None, [1, 2], wants="trial")).found.notes
        == ()
    )
