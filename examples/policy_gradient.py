"""REINFORCE on LQG whose gradients get most of their samples where the error comes from.

python examples/policy_gradient.py            trains for 40 updates, about half a minute
python examples/policy_gradient.py --updates 2 --strategy uniform
"""

import argparse

import torch

import rido

ENV, GAMMA, HORIZON = "rido/LQG-v0", 0.9, 20


class Policy(torch.nn.Module):
    """The action is normal around a linear function of the state."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(0.1, dtype=torch.float64))
        self.log_deviation = torch.nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    def forward(self, states):
        """Return the distribution of the actions for a batch of states."""
        return torch.distributions.Normal(-self.gain * states, self.log_deviation.exp())


def main(updates=40, budget=500, strategy="adaptive"):
    """Train; return the policy and the gradient of each update. The reward of LQG is a cost, so it is minimised."""
    policy, found = Policy(), []
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    for update in range(updates):
        gradient = rido.gradient(
            ENV, policy, gamma=GAMMA, horizon=HORIZON, budget=budget, strategy=strategy, baseline="step", seed=update
        )
        for name, parameter in policy.named_parameters():
            parameter.grad = torch.as_tensor(gradient.value[name])
        optimizer.step()
        found.append(gradient)
        print(
            f"update {update}: cost {gradient.returns.value:.0f}, gain {policy.gain.item():.3f}, relative error of the "
            f"gradient {gradient.relative_error:.2f}, {gradient.trajectories} trajectories"
        )
    return policy, found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=40)
    parser.add_argument("--budget", type=int, default=500)
    parser.add_argument("--strategy", choices=["adaptive", "uniform"], default="adaptive")
    main(**vars(parser.parse_args()))
