"""compare(): which of several policies is better, and is that sure?"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from rido.comparison.comparison import Comparison
from rido.comparison.race import Race
from rido.core import checks
from rido.core.trajectories import concatenate
from rido.evaluation.progress import Progress
from rido.evaluation.source import EndedError, Live, Recorded, Request, Resumed, Said, Source, collect
from rido.policies.files import named_policies
from rido.record.database import RunFileError
from rido.record.fingerprint import identify
from rido.record.header import ComparisonHeader
from rido.record.records import Piece
from rido.record.runfile import RunFile
from rido.simulators import factory
from rido.simulators.base import Simulator, describe, refuse_components, refuse_memory
from rido.simulators.factory import SimulatorName
from rido.simulators.identity import engine, environment_fingerprint, environment_name
from rido.simulators.lineup import Lineup
from rido.simulators.sobol import Starts, check_seeds, refuse_without_points

_SETTINGS = ("horizon", "budget", "gamma", "confidence", "tolerance", "starts")  # of a race, in a run file


@checks.checked()
def compare(
    env: Any,
    policies: Mapping[str, Any] | Sequence[Any] | str | Path,
    *,
    gamma: float,
    budget: int,
    horizon: int | None = None,
    end_on_truncation: bool = False,
    env_kwargs: Mapping[str, Any] | None = None,
    deterministic: bool = True,
    confidence: float = 0.95,
    tolerance: float = 0.0,
    starts: Starts = "random",
    seed: int | None = None,
    reseed: bool = True,
    num_envs: int | None = None,
    workers: int = 1,
    simulator: SimulatorName | Callable[..., Simulator] | None = None,
    step_timeout: float | None = None,
    stop: Callable[[Comparison], bool] | None = None,
    run: str | Path | None = None,
    progress: bool | None = None,
    trust: bool = False,
) -> Comparison:
    """Finds the best of several policies with as few transitions as possible.

    Trajectory i of every policy has the same seed and the same length, so that differences between policies are known
    much better than their returns. Policies that are surely not the best drop out on the way; see :class:`rido.Race`
    for how sure that is.

    Args:
        env: as in :func:`rido.evaluate`; not a simulator of your own, for which there is :class:`rido.Race`.
        policies: 2 to 100 of what :func:`rido.evaluate` takes for one: a dictionary by name, a list, a folder of
            checkpoints, or a pattern such as ``checkpoints/*.zip``.
        gamma: discount factor in (0, 1].
        budget: transitions for all policies together; never exceeded. At most 100 more for each
            policy, which are not counted, rehearse what runs side by side.
        horizon: steps over which the return is summed; as in :func:`rido.evaluate` if not given.
        end_on_truncation: as in :func:`rido.evaluate`.
        env_kwargs: arguments of the environment, with an id.
        deterministic: whether agents take their most likely action or sample one.
        confidence: probability that no policy is wrongly called the best.
        tolerance: difference that does not matter: stop when the leader is surely not worse than any other by more.
        starts: as in :func:`rido.evaluate`; trajectory i of every policy has the same start.
        seed: what all randomness comes from; drawn and reported if not given.
        reseed: as in :func:`rido.evaluate`; without it there are no common seeds, and nothing is gained by pairing.
        num_envs: environments to run side by side, in each worker, where the policy is known to act on batches; a
            policy of one observation acts in one environment. It does not change the result.
        workers: processes to collect in. They do not change the result.
        simulator: as in :func:`rido.evaluate`.
        step_timeout: as in :func:`rido.evaluate`.
        stop: called with what is known after each round; the comparison ends where it returns True.
        run: a file that records the comparison. If it exists, the comparison resumes.
        progress: whether to show a progress bar; if not given, when standard error is a terminal.
        trust: whether the files of agents may run code when they are loaded.

    Returns:
        The best policy if there is a clear one, the ranking, all differences, and who dropped out when.

    Example:
        >>> result = compare("Pendulum-v1", ["rido:pendulum", "random"], gamma=0.9, budget=20_000, seed=1)
        >>> result.best, result.transitions < 20_000
        ('rido:pendulum', True)
    """
    if factory.is_simulator(env):
        raise ValueError("env must be an environment, got a simulator of your own: tell rido.Race its trajectories")
    named = named_policies(policies)
    ends: dict[str, Any] = dict(end_on_truncation=end_on_truncation, reseed=reseed)
    env, simulator, horizon = factory.resolve_environment(
        env, horizon, gamma, env_kwargs=env_kwargs, simulator=simulator, **ends
    )
    settings: dict[str, Any] = dict(
        horizon=horizon, budget=budget, gamma=gamma, confidence=confidence, tolerance=tolerance, starts=starts
    )
    race = Race(tuple(named), **settings)
    lineup = make_lineup(
        env,
        named,
        simulator=simulator,
        workers=workers,
        step_timeout=step_timeout,
        horizon=horizon,
        gamma=gamma,
        env_kwargs=env_kwargs,
        num_envs=num_envs,
        deterministic=deterministic,
        trust=trust,
        **ends,
    )
    record = None
    try:
        if starts == "sobol":
            refuse_without_points(lineup.simulator(next(iter(named))), reseed=reseed)
        race.lockstep = describe(lineup.simulator(next(iter(named)))).in_time_of_one
        entropy = secrets.randbits(64) if seed is None else seed
        if run is not None:
            header = ComparisonHeader(
                names=list(named),
                environment=environment_name(env),
                env_kwargs=repr(dict(env_kwargs or {})),
                deterministic=deterministic,
                end_on_truncation=bool(end_on_truncation),
                reseed=bool(reseed),
                simulator=engine(lineup.simulator(next(iter(named)))),
                environment_fingerprint=environment_fingerprint(env),
                policies_fingerprint=[
                    identify("policy", describe(lineup.simulator(name)).load_policy()) for name in named
                ],
                **settings,
                seed=seed,
            )
            record = RunFile(run, header, defaults={"seed": entropy, "lockstep": race.lockstep})
            assert isinstance(record.header, ComparisonHeader)
            entropy, race.lockstep = record.header.seed or 0, record.header.lockstep or 0
        sources = _open_sources(race, lineup, entropy, record)
        with Progress(race.budget, shown=progress) as bar:
            result = _run_from(sources, race, bar, lineup, stop)
    finally:
        if record is not None:
            record.close()
        warnings = lineup.close()
    return replace(result, environment=environment_name(env), seed=entropy, notes=(*result.notes, *warnings))


def make_lineup(
    env: Any,
    policies: Mapping[str, Any],
    *,
    simulator: SimulatorName | Callable[..., Simulator] | None,
    **settings: Any,
) -> Lineup:
    """Returns simulators of several policies in one environment.

    Args:
        env: the environment.
        policies: by name.
        simulator: as in :func:`rido.evaluate`.
        **settings: what else :func:`rido.simulators.factory.simulator_maker` takes.
    """
    if simulator is None and factory.is_in_jax(env):
        simulator = "jax"
    make = factory.simulator_maker(env, simulator, **settings)
    return Lineup(make, policies, switching=factory.switches_policies(simulator))


def _open_sources(race: Race, lineup: Lineup, entropy: int, record: RunFile | None) -> dict[str, Source]:
    """Returns where the trajectories of each policy come from."""
    pieces = deque(record.pieces() if record is not None else ())
    fresh, sources = not pieces, dict[str, Source]()
    for name in race.names:
        running = lineup.simulator(name)
        able = describe(running)
        refuse_components(running, "a comparison of policies")
        refuse_memory(running, name)
        notes = []
        if fresh:  # a run that resumes has noted it
            if able.policy is not None and not able.policy.reproducible:
                notes.append(f"{name} draws random numbers that the seed does not control")
            notes += check_seeds(running, entropy, sobol=race.replicates > 0)
        live = Live(
            partial(lineup.simulator, name),
            entropy,
            horizon=race.horizon,
            gamma=race.gamma,
            replicates=race.replicates,
            notes=notes,
            doubts=[] if able.policy is None else [f"{name}: {warning}" for warning in able.policy.warnings],
        )
        sources[name] = live if record is None else Resumed(record, live, pieces)
    return sources


def _run_from(
    sources: Mapping[str, Source],
    race: Race,
    bar: Progress,
    lineup: Lineup | None = None,
    stop: Callable[[Comparison], bool] | None = None,
) -> Comparison:
    """Runs a race until it is decided or its sources end.

    Raises:
        EndedError: a recorded race has no finished round.
    """
    trajectories, seconds, said, warnings = 0, 0.0, dict[str, Said](), list[str]()
    try:
        while (asked := race.ask()) is not None:
            names, schedule = asked
            if lineup is not None:
                lineup.expect(names)
            lengths, groups, told, pieces = schedule.lengths, race.dealt(schedule.lengths), {}, list[Piece]()
            for place, name in enumerate(race.names):
                if name in names:
                    number = race.rounds * len(race.names) + place
                    parts = collect(sources[name], Request(number, trajectories, lengths, groups), bar)
                    told[name] = concatenate([part.trajectories for part in parts])
                    said[name], pieces = sources[name].said(), [*pieces, *parts]
            race.tell(told)
            trajectories += lengths.size
            seconds += sum(piece.seconds for piece in pieces)
            if lineup is not None:
                warnings += [text for name in names if name not in race.racing for text in lineup.dismiss(name)]
            bar.describe(f"{race.leader} leads, {len(race.racing)} of {len(race.names)} are left")
            if stop is not None and checks.called("stop", stop, race.result()):
                break
    except EndedError:
        if race.rounds == 0:
            raise
    notes, doubts, remarks = (
        dict.fromkeys(text for one in said.values() for text in texts(one))
        for texts in (attrgetter("notes"), attrgetter("doubts"), attrgetter("remarks"))
    )
    return replace(
        race.result(),
        seconds=seconds,
        reproducible=not notes,
        notes=(*notes, *doubts, *warnings),
        remarks=tuple(remarks),
    )


def read_comparison(path: str | Path) -> Comparison:
    """Reads the file of a comparison; one that is being written is fine too.

    All numbers are computed again from the recorded trajectories.

    Args:
        path: the file that ``compare(run=...)`` wrote.

    Returns:
        The comparison up to the last round that was finished.
    """
    with RunFile.read(path) as file:
        header = file.header
        if not isinstance(header, ComparisonHeader):
            raise RunFileError(f"run file {path} is of an evaluation, not of a comparison")
        race = Race(header.names, **{name: getattr(header, name) for name in _SETTINGS}, lockstep=header.lockstep or 0)
        recorded = Recorded(file)
        found = _run_from(dict.fromkeys(race.names, recorded), race, Progress(race.budget, shown=False))
    return replace(found, environment=header.environment, seed=header.seed)
