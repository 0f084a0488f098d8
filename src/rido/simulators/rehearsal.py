"""Would a plain loop have seen the same? Tried in a few steps before environments run side by side, or in processes.

A plain loop has one environment and calls the policy with one observation at a time. Elsewhere a trajectory must depend
on its seed and its actions alone, and an action on its observation alone. Three plays of :data:`STEPS` steps show
whether it does:

1. the first seed in a fresh environment, by itself;
2. the same seed and actions in another fresh one, while the second seed begins beside it in the environment of play 1;
3. the second seed and its actions again, in the environment of play 1, by itself.

Where plays 2 and 3 repeat what was seen before, all is well. Where only play 2 does, environments are alike when they
are fresh and differ later. Then the other one plays a third seed and the second one again, and the first one the second
seed: where environments of the same age are alike, and those of another age are not, several would repeat the same
noise; else reset() keeps some state. Where neither play repeats, play 1 is played again: environments share a state
where it is the same, or else draw random numbers that no seed controls. A policy that takes batches gets what was seen
in one batch, and must act as it did on each observation by itself.

What stays unseen: what shows after more steps, and rewards that depend on the clock.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal

import cloudpickle  # type: ignore[import-untyped]
import numpy as np

from rido.policies.base import Policy
from rido.policies.functions import RandomPolicy
from rido.policies.observations import alike, leaves, stack, take
from rido.simulators.base import Request
from rido.simulators.environments import Environments, SingleEnvironments
from rido.simulators.repeatability import GlobalState, content
from rido.simulators.sequence import SequentialRollout
from rido.simulators.wrappers import layers

STEPS = 14
"""Steps of a play; four plays are 56 transitions, and seven are 98."""

_QUICK = 0.005  # seconds of a constructor, up to which another instance costs less than it saves
_LATE = 5  # steps after which the second trajectory of play 2 begins
ROWS = 8  # of a batch in which a policy is tried
_MIXED = 1 / 8  # share of them whose action may differ: a choice between equals flips by rounding

_PAGE = "see docs/warnings.md#one-environment-at-a-time"
WORKERS_COPY = (
    "workers must be 1 with this environment, whose instances all repeat the same noise: what it does depends on what "
    "it did before, not on its seed alone (a generator made in its constructor or module, or a count of episodes); "
    f"draw from self.np_random, {_PAGE}"
)
WORKERS_REMEMBER = (
    "workers must be 1 with {}, of which each worker would have a copy: it remembers earlier calls, or draws from "
    "its own generator; give it a method reset(), or a parameter generator to draw from"
)
ROWS_COPY = (
    "env must seed each row by its own seed, got a VectorEnv whose rows repeat the same noise: seed them in reset(), "
    "or give a function that makes a single environment"
)

Kind = Literal["same", "copies", "history", "shared", "differ"]
"""What trajectories depend on beside seed and actions: nothing, the age of an instance, what it did, others, chance."""


@dataclass(eq=False)
class Play:
    """A trajectory of a few steps, with given actions or those of the policy; ``row`` is the place of its seed."""

    seed: int
    given: list[Any] | None = None
    row: int = 0
    seen: list[Any] = field(default_factory=list)
    rewards: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    over: bool = False
    state: Any = None

    def same(self, other: "Play") -> bool:
        """Returns whether both saw and earned the same, but for rounding."""
        if len(self.rewards) != len(other.rewards) or not alike(self.rewards, other.rewards):
            return False
        return alike(stack(self.seen), stack(other.seen))

    @property
    def digest(self) -> str:
        """Digest of what was seen and earned."""
        numbers = [np.asarray(part) for batch in (*self.seen, self.rewards) for part in leaves(batch)]
        return blake2b(b"".join(part.tobytes() for part in numbers if part.dtype != object)).hexdigest()


@dataclass(frozen=True)
class Rehearsal:
    """What was found.

    Attributes:
        kind: what trajectories depend on.
        failed: what was raised; empty if nothing was.
        mixes: whether the policy acts differently on batches.
        batches: whether the policy turned out to take batches, which it was tried on.
        transitions: that it took.
        digest: of play 3, the same in two processes whose noise is the same, whatever the first seed.
    """

    kind: Kind = "same"
    failed: str = ""
    mixes: bool = False
    batches: bool = False
    transitions: int = 0
    digest: str = ""


def rehearsal_notes(found: Rehearsal, policy: str, *, vectorised: bool) -> list[str]:
    """Returns what a reader should know of trajectories that do not depend on seed and actions alone."""
    if vectorised and found.kind != "same":
        return [
            "rows of the VectorEnv do not repeat with their seeds: rows that share a state cannot be told from random "
            f"numbers that the seed does not control; {_PAGE}"
        ]
    alone = "one environment ran at a time, which may take several times as long:"
    notes = {
        "same": f"{policy} acts differently on several observations at once: it was called with one at a time; {_PAGE}",
        "copies": f"{alone} what it does depends on what it did before, not on its seed alone (a generator made in its "
        f"constructor, for example), so several would repeat the same noise; {_PAGE}",
        "history": f"{alone} what it does depends on what it did before, not on its seed alone, for reset() keeps some "
        f"state; {_PAGE}",
        "shared": f"{alone} instances share a state, and a trajectory changes when another instance is stepped beside "
        f"it; {_PAGE}",
        "differ": f"{alone} the same seed and actions gave another trajectory (random numbers that the seed does not "
        f"control, or a state that instances share); {_PAGE}",
    }
    return [notes[found.kind]]


def rehearse(envs: Environments, policy: Policy, seeds: Sequence[int], steps: int = STEPS) -> Rehearsal:
    """Plays the three plays of the module in slots 0 and 1, which must be fresh, with two different seeds.

    A policy that takes batches acts; otherwise actions are sampled, for it may remember its calls.
    """
    before, plays, (one, two) = GlobalState(), list[Play](), seeds

    def play(slots: dict[int, Play]) -> None:
        """Plays in several slots side by side, each beginning a few steps after the one before it."""
        plays.extend(slots.values())
        begins, tick = {slot: place * _LATE for place, slot in enumerate(slots)}, 0
        while any(not each.over for each in slots.values()):
            for slot, each in slots.items():
                if begins[slot] == tick:
                    envs.rehearsing = "reset", each.row, 0
                    envs.reset(np.array([slot]), [each.seed])
            if busy := [slot for slot, each in slots.items() if begins[slot] <= tick and not each.over]:
                _step(envs, policy, busy, slots, steps)
            tick += 1

    try:
        play({0: (first := Play(one))})
        play({1: (again := Play(one, first.actions)), 0: (second := Play(two, row=1))})
        play({0: (last := Play(two, second.actions, 1))})
        fresh, later = again.same(first), last.same(second)
        kind: Kind = "same" if fresh and later else "copies" if fresh else "differ"
        if kind == "differ":
            play({0: (alone := Play(one, first.actions))})
            kind = "shared" if alone.same(first) else kind
        elif kind == "copies":
            play({1: Play(one + two)})
            play({1: (third := Play(two, second.actions, 1))})
            play({0: (fourth := Play(two, second.actions, 1))})
            kind = "copies" if third.same(last) and not fourth.same(last) else "history"
        seen = [*first.seen, *second.seen]
        mixes = not policy.in_sequence and policy.reproducible and mixes_rows(policy, seen[:: -(-len(seen) // ROWS)])
        found = Rehearsal(kind, mixes=mixes, digest=last.digest)
    except (Exception, SystemExit) as error:  # the first trajectory fails in the same way, and its error says where
        found = Rehearsal(failed=str(error) or repr(error))
    finally:
        envs.rehearsing = None
        before.restore()
    return replace(found, transitions=sum(len(play.rewards) for play in plays))


def _step(envs: Environments, policy: Policy, busy: list[int], plays: dict[int, Play], steps: int) -> None:
    slots, actions = np.array(sorted(busy)), []
    for slot in slots.tolist():
        play = plays[slot]
        envs.rehearsing = "policy", play.row, len(play.rewards)
        play.seen.append(seen := envs.observe(np.array([slot])))
        given = play.given
        play.actions.append(_act(envs, policy, play, seen) if given is None else given[len(play.rewards)])
        actions.append(play.actions[-1])
    batch: Any = actions if envs.action_space.shape is None else np.stack(actions)
    play = plays[int(slots[0])]
    envs.rehearsing = "step", play.row, len(play.rewards)
    rewards, terminated, truncated = envs.step(slots, batch)
    for row, slot in enumerate(slots.tolist()):
        play = plays[slot]
        play.rewards.append(rewards[row])
        play.over = bool(terminated[row] or truncated[row]) or len(play.rewards) == steps


def _act(envs: Environments, policy: Policy, play: Play, observation: Any) -> Any:
    """Returns the action of one observation, as the environment gets it."""
    if play.state is None and policy.in_sequence:
        space = cloudpickle.loads(cloudpickle.dumps(envs.action_space))
        space.seed(play.seed % 2**31)
        play.state = lambda _: space.sample()
    elif play.state is None:
        play.state = policy.begin(np.random.default_rng([play.seed, 1]))
    return play.state(take(observation, 0))


def instances_differ(envs: SingleEnvironments, seed: int) -> tuple[bool, int]:
    """Returns whether the same seed and actions give another trajectory in a fresh instance, and the transitions taken.

    Constructors may draw random numbers that no seed controls. Instances whose contents are the same, byte for byte,
    after the same reset need no step.
    """
    before, taken, quick = GlobalState(), 0, False
    if not envs.makes:
        return False, 0
    try:
        first = _content(envs, seed)
        plays = [_alone(envs, seed)] if first is None else []
        started = time.perf_counter()
        if not envs.renew():
            return False, 0
        quick = time.perf_counter() - started < _QUICK
        if first is not None and first == _content(envs, seed):
            return False, 0
        plays.append(_alone(envs, seed))
        if len(plays) < 2:
            envs.renew()
            plays.append(_alone(envs, seed))
        one, other = plays
        taken = one.trajectories().transitions + other.trajectories().transitions
        same = len(one.seen) == len(other.seen) and all(map(alike, one.seen, other.seen))
        return not (same and alike(one.trajectories().flat, other.trajectories().flat)), taken
    except (Exception, SystemExit):
        return False, taken  # the first trajectory fails in the same way, and its error says where
    finally:
        if quick:  # Python reads attributes of an object more slowly once all of them were listed
            envs.renew()
        before.restore()


def _content(envs: SingleEnvironments, seed: int) -> bytes | None:
    """Returns the attributes of an environment and its wrappers after a reset; None if they cannot be compared."""
    envs.begin(seed, None)
    return content([{name: it for name, it in vars(layer).items() if name != "env"} for layer in layers(envs.first)])


def _alone(envs: SingleEnvironments, seed: int) -> SequentialRollout:
    """Plays a few steps as a plain loop does, with actions that the seed decides."""
    request = Request(np.array([STEPS]), [seed], wants="observations")
    played = SequentialRollout(envs, RandomPolicy(envs.action_space), request, ends=True)
    played.run(lambda row: envs.begin(seed, None))
    return played


def mixes_rows(policy: Policy, seen: Sequence[Any]) -> bool:
    """Returns whether a policy acts differently on observations in a batch and one by one."""
    together = np.asarray(policy(stack(list(seen)), [np.random.default_rng(row) for row in range(len(seen))]))
    alone = [policy(one, [np.random.default_rng(row)])[0] for row, one in enumerate(seen)]
    differ = [not alike(one, other) for one, other in zip(together, alone, strict=True)]
    return float(np.mean(differ)) > _MIXED


def can_pair(envs: Environments) -> bool:
    """Makes two fresh slots for a rehearsal; returns whether there are two, and reason to try them."""
    if isinstance(envs, SingleEnvironments):
        return envs.pair()
    return not envs.takes_points and envs.provide(2) > 1
