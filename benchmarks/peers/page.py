"""The page of results: its text and its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cell:
    """One world, policy and budget, with the errors of every method.

    Attributes:
        section: Table that it belongs to.
        group: Row of the table.
        episodes: Budget, in mean lengths of an episode.
        ratios: For each method, its mean squared error over that of Monte Carlo at as many transitions.
        biases: For each method, its mean error in standard deviations of Monte Carlo.
    """

    section: str
    group: str
    episodes: int
    ratios: dict[str, float]
    biases: dict[str, float]


def page(cells: Sequence[Cell], repetitions: int) -> str:
    """The whole page."""
    parts = [_HEAD.replace("REPETITIONS", str(repetitions))]
    for section, text in _SECTIONS.items():
        found = [cell for cell in cells if cell.section == section]
        parts += [f"## {section}", *([text.strip(), table(found), largest_biases(found)] if found else ["Not run."])]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def table(cells: Sequence[Cell]) -> str:
    """Mean ratio over the policies of a world, and the largest one in brackets."""
    names = list(cells[0].ratios)
    lines = ["| " + " | ".join(["world", "episodes", *names]) + " |", "|---" * (2 + len(names)) + "|"]
    for group, episodes in dict.fromkeys((cell.group, cell.episodes) for cell in cells):
        found = [cell.ratios for cell in cells if (cell.group, cell.episodes) == (group, episodes)]
        columns = [[ratios[name] for ratios in found] for name in names]
        entries = [f"{np.mean(column):.2f} ({max(column):.2f})" for column in columns]
        lines.append("| " + " | ".join([group, f"{episodes:,}", *entries]) + " |")
    return "\n".join(lines)


def largest_biases(cells: Sequence[Cell]) -> str:
    """The largest mean error of every method."""
    worst = {name: max((cell.biases[name] for cell in cells), key=abs) for name in cells[0].biases}
    found = "; ".join(f"{name} {bias:+.2f}" for name, bias in worst.items())
    return f"Largest mean error, in standard deviations of Monte Carlo's estimate: {found}."


_HEAD = """
# Beside published ways to sample

Made by `python benchmarks/peers --output results/peers.md`. REPETITIONS repetitions of each method in each cell.

The other way to spend transitions well is to choose the actions: a behaviour policy other than the one that is
evaluated. It needs the policy's probabilities, and mostly a table or a model of Q. `rido` needs neither: it chooses
lengths, and sees rewards alone.

- **Monte Carlo**: the mean return of plain episodes.
- **rido**: `rido.evaluate(strategy="adaptive")`. Needs rewards.
- **ROS**: robust on-policy sampling (Zhong et al. 2022). Actions that came too rarely become likelier; the estimate
  is the plain mean of returns. Needs probabilities and their gradient. Not exactly unbiased.
- **DR**: the doubly robust estimator (Jiang and Li 2016), on-policy. Plain episodes, with Q as a control variate for
  the actions. Needs probabilities and Q.
- **ODI**: offline data informed design (Liu and Zhang 2024). Importance sampling from a policy of less variance.
  Needs probabilities, Q and second moments of returns.
- **DOpt**: doubly optimal design (Liu, Chen and Zhang 2025). Behaviour policy and baseline together. Needs
  probabilities, Q and variances.

DR, ODI and DOpt learn what they need from data. In the papers these are offline data that the budget does not count:
"free data" in the tables. Without that remark, 20% of the budget is spent on plain episodes that serve the design
alone. "Free data alone" is the value in the model of the free data, without any further transition. It says how much
of the answer the free data hold.

**How to read the tables.** Mean squared error over that of plain Monte Carlo at the same number of transitions. The
latter is exact: the variance of a return by dynamic programming, over the number of episodes. True values are by
dynamic programming too. An entry is the mean over three policies, with the worst of them in brackets; one policy's
ratio has a standard error of a tenth of itself. The budget is given in mean lengths of an episode.

**What was assumed.** All methods are tabular and written anew for this page.

- The slippery worlds are those of Liu and Zhang's code: a start in the middle, a reward for each cell and action,
  drawn once and larger far from a corner, one move in ten random. The papers' 1,000 and 27,000 states are taken as
  grids of 10x10 and 30x30 with a horizon as long as the grid is wide; 3x3 with T = 5 is the code's default. Random
  policies have one distribution of actions for all cells, as in that code, or one for each.
- The maze is Zhong et al.'s. Its policies take the best action, or with probability 0.1, 0.3 or 0.5 a random one.
  Values, variances and lengths of its best and its random policy agree with the published ones.
- ROS has the step size 1,000, which its authors marked for tables.
- Free data are 333 transitions for each cell (the code has 3,000 for 9 cells) with random actions. Learning is exact:
  the tabular limit of fitted Q. The recursion for the variances of DOpt is the exact one too.
- The papers fit networks, which smooth where data are few. Here one made-up move of any direction is added to each cell
  and action instead; without it DOpt is far worse than Monte Carlo on the larger grids. The policy itself acts where
  a design would exclude an action, as in that code.
"""

_SECTIONS = {
    "The papers' worlds": """
Gamma is 1, episodes are short, and the policy draws its actions. Here the peers win. The last step weighs as much as
the first, so `rido` collects plain episodes and has Monte Carlo's error. Most of the variance comes from the drawn
actions, which the peers remove. ROS does so at every budget, without data beforehand. Designs from free data have the
least error, but at 100 episodes the free data alone do as well or better. Designs that pay for their data need some
hundred episodes before they gain; until then ODI and DR lose to Monte Carlo on the larger grids. In the maze moves
are certain: without the variance of actions none is left.
""",
    "Longer episodes": """
Liu and Zhang's world, with episodes ten times longer than in the papers. At gamma 1 nothing changes. With a discount
`rido` stops trajectories where rewards no longer count, and gains as much as the designs that pay for their data,
from rewards alone. The gains are of different kinds: lengths save transitions, designs remove the variance of
actions. No method here does both.
""",
    "A deterministic policy": """
The best action in each cell. No action is drawn, so there is none to choose and no variance of actions to remove: all
peers have Monte Carlo's error, or more where they pay for data. `rido` gains with the discount as before.
""",
}
