"""Suite: several policies in several tasks, paid by one budget; described in a file, recorded, resumed and extended."""

from __future__ import annotations

import glob
import re
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Unpack

from rido.core import checks
from rido.core.options import takes
from rido.evaluation.problem import Problem
from rido.evaluation.progress import Progress
from rido.policies.files import checkpoints
from rido.policies.hub import pinned
from rido.policies.resolve import is_path
from rido.simulators.base import Simulator
from rido.simulators.options import WITHOUT, Options
from rido.suite.leaderboard import Leaderboard, Task
from rido.suite.race import SuiteRace
from rido.suite.task import OpenTask

_KEYS = ("budget", "seed", "confidence", "deterministic", "tasks", "policies")


class Suite:
    """Policies, the tasks to evaluate them in, and a budget for all.

    Args:
        tasks: by name; each a :class:`Task` or a dictionary of its fields.
        policies: by name; each what :func:`rido.evaluate` takes for one, or a dictionary of these by task. In a text,
            ``{task}`` stands for the name of the task. A pattern such as ``"runs/*/{task}.zip"`` gives a policy for
            each of its files, named by what the wildcard stands for; it must have the same ones in all tasks.
        budget: transitions for all tasks and policies together; never exceeded. At most 100 more for each
            policy, which are not counted, rehearse what runs side by side.
        seed: what all randomness comes from.
        confidence: probability that every significant order of two policies is right.
        deterministic: whether agents take their most likely action or sample one.
        base: folder that relative paths of policies start from.

    Attributes:
        tasks: by name, with their horizons.
        policies: by task and name.

    Example:
        >>> pendulum = Task("Pendulum-v1", gamma=0.9, horizon=30)
        >>> tasks = {"earth": pendulum, "moon": replace(pendulum, env_kwargs={"g": 1.62})}
        >>> suite = Suite(tasks, {"agent": "rido:pendulum", "random": "random"}, budget=20_000)
        >>> suite.run().best
        'agent'
    """

    @checks.checked(base=checks.path)
    def __init__(
        self,
        tasks: Mapping[str, Task | Mapping[str, Any]],
        policies: Mapping[str, Any],
        *,
        budget: int,
        seed: int = 0,
        confidence: float = 0.95,
        deterministic: bool = True,
        base: str | Path = ".",
    ) -> None:
        checks.instance("tasks", tasks, Mapping)
        checks.instance("policies", policies, Mapping)
        self.tasks = {str(name): _task(str(name), task) for name, task in tasks.items()}
        self.policies = {name: _policies_of(name, policies, Path(base)) for name in self.tasks}
        names = [list(found) for found in self.policies.values()]
        for task, found in zip(self.tasks, names, strict=True):
            if set(found) != set(names[0]):
                odd = sorted(set(found) ^ set(names[0]))
                both = f"{next(iter(self.tasks))} and {task}"
                raise ValueError(f"policies must be the same in all tasks, got {odd[0]} in only one of {both}")
        self.budget, self.seed = budget, seed
        self.confidence, self.deterministic = confidence, deterministic
        self._race()  # checks everything before anything is simulated

    @classmethod
    def read(cls, path: str | Path) -> Suite:
        """Reads a suite from a TOML file.

        Args:
            path: the file. It has ``budget`` and, where they are to be others than the defaults, ``seed``,
                ``confidence`` and ``deterministic``; a table ``[tasks.NAME]`` for each task with the fields of
                :class:`Task`; and a table ``[policies]``. Relative paths start from its folder.
        """
        checks.path("path", path)
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            found = " ".join(f"{path}: {reason}".split())
            raise ValueError(f"suite must be a TOML file, got {found}") from error
        if unknown := [key for key in content if key not in _KEYS]:
            raise ValueError(f"suite {path} must have {', '.join(_KEYS)} only, got {unknown[0]!r}")
        if missing := [key for key in ("budget", "tasks", "policies") if key not in content]:
            raise ValueError(f"suite {path} must have {missing[0]}")
        for key in ("tasks", "policies"):
            if not isinstance(content[key], dict):
                raise ValueError(f"{key} of suite {path} must be a table of names, got {checks.shown(content[key])}")
        return cls(**content, base=Path(path).parent)

    @takes(Options, without=WITHOUT["Suite.run"])
    def run(self, folder: str | Path | None = None, **options: Unpack[Options]) -> Leaderboard:
        """Evaluates all policies in all tasks.

        The result depends on the suite alone. What the folder has already, from this suite before it was killed or
        from one with other tasks, policies or budgets, is not simulated again. Actors of all tasks are there at once,
        but those of one task work at a time: a ``RaySimulator`` with settings of your own needs ``num_actors`` and
        ``num_cpus=0``.

        Args:
            folder: where trajectories are recorded, a run file for each policy in each task; made if it is not there.

        Returns:
            The leaderboard.
        """
        race = self._race()
        settings: dict[str, Any] = {**options, "deterministic": self.deterministic}
        if options["simulator"] == "ray":
            settings |= {"simulator": ray_simulator(None, options["workers"]), "workers": 1}
        once = cache(pinned)  # an agent on the hub is the same one in all tasks
        agents = {
            task: {name: once(policy) if isinstance(policy, str) else policy for name, policy in found.items()}
            for task, found in self.policies.items()
        }
        notes: list[str] = []
        remarks: list[str] = []
        with ExitStack() as stack, Progress(self.budget, shown=options["progress"]) as bar:
            opened = {
                name: stack.enter_context(
                    OpenTask(name, task, agents[name], seed=self.seed, folder=folder, settings=settings)
                )
                for name, task in self.tasks.items()
            }
            while (asked := race.ask()) is not None:
                race.tell({name: opened[name].collect(requests, bar) for name, requests in asked.items()})
                bar.describe(f"the order of {race.undecided} pairs is open")
            for task in opened.values():
                notes, remarks = [*notes, *task.notes], [*remarks, *task.remarks]
        return replace(race.result(), seed=self.seed, notes=tuple(notes), remarks=tuple(remarks))

    def _race(self) -> SuiteRace:
        names = list(next(iter(self.policies.values()), ()))
        return SuiteRace(self.tasks, names, budget=self.budget, confidence=self.confidence)


def ray_simulator(address: str | None, actors: int) -> Callable[..., Simulator]:
    """Returns what makes a simulator on a Ray cluster for each task of a suite.

    Args:
        address: of a running cluster; None for one that is started here.
        actors: for each task. They reserve no processors, because those of one task work at a time.
    """
    from rido.simulators.parallel.ray import RaySimulator

    return partial(RaySimulator, address=address, num_actors=actors, num_cpus=0)


def _task(name: str, given: Task | Mapping[str, Any]) -> Task:
    known = [field.name for field in fields(Task)]
    try:
        if not isinstance(given, Task):
            checks.instance("it", given, Mapping)
            if unknown := [key for key in given if key not in known]:
                raise ValueError(f"it must have {', '.join(known)} only, got {unknown[0]!r}")
            if missing := [key for key in ("env", "gamma") if key not in given]:
                raise ValueError(f"it must have {missing[0]}")
            given = Task(**given)
        problem = Problem.resolve(given.env, given.gamma, given.options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"task {name}: {error}") from error
    return replace(given, env=problem.env, horizon=problem.horizon)


def _policies_of(task: str, policies: Mapping[str, Any], base: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, policy in policies.items():
        if isinstance(policy, Mapping):
            if task not in policy:
                raise ValueError(f"policy {name} must be given for each task, got none for {task}")
            policy = policy[task]
        for own_name, one in _expanded(str(name), policy, task, base).items():
            if own_name in found:
                raise ValueError(f"policies must have different names, got {own_name} more than once")
            found[own_name] = one
    return found


def _expanded(name: str, policy: Any, task: str, base: Path) -> dict[str, Any]:
    """Returns a policy, or those of a pattern, by name; files are found from the folder ``base``."""
    if not isinstance(policy, str):
        return {name: policy}
    policy = policy.replace("{task}", task)
    place = str(base / policy)
    if glob.has_magic(policy) and not Path(place).is_file():
        start, *_, end = re.split(r"[*?]+|\[[^]]*\]", place)
        return {f"{name} {str(file)[len(start) : len(str(file)) - len(end)]}": file for file in checkpoints(place)}
    named = policy == "random" or ":" in policy
    return {name: place if is_path(policy) or (is_path(place) and not named) else policy}
