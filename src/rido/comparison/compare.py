"""compare(): which of several policies is better, and is the difference significant?"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Required, Unpack

from rido.comparison.comparison import Comparison
from rido.comparison.race import Race
from rido.core import checks
from rido.core.options import REQUIRED, SPEND, Option, declares, takes
from rido.core.trajectories import concatenate
from rido.evaluation.problem import Problem, policy_fingerprint
from rido.evaluation.progress import Progress
from rido.evaluation.source import EndedError, Live, Recorded, Resumed, Said, Source, Wanted, collect
from rido.policies.files import named_policies
from rido.record.database import RunFileError
from rido.record.header import ComparisonHeader, Piece
from rido.record.runfile import RunFile
from rido.simulators import factory
from rido.simulators.base import refuse_side_by_side
from rido.simulators.lineup import Lineup
from rido.simulators.options import Options
from rido.simulators.sobol import check_seeds, refuse_without_points

DECIDE = "What to decide"  # heading of the options of a decision
_SETTINGS = ("horizon", "budget", "gamma", "confidence", "tolerance", "starts")  # of a race, in a run file


@declares
class CompareOptions(Options, total=False):
    """Options of compare(), beside those that other functions take too.

    Args:
        budget: transitions for all policies together. It is never exceeded. At most 100 more for each policy, which
            are not counted, rehearse what runs side by side.
        confidence: probability that no policy is wrongly called best.
        tolerance: difference that does not matter. The comparison stops when the leader is significantly not worse
            than any other by more.
        stop: called with what is known after each round; the comparison ends where it returns True.
        run: a file that records the comparison, from which it resumes.
    """

    budget: Required[Annotated[int, Option(REQUIRED, SPEND)]]
    confidence: Annotated[float, Option(0.95, DECIDE)]
    tolerance: Annotated[float, Option(0.0, DECIDE)]
    stop: Annotated[Callable[[Comparison], bool] | None, Option(None, DECIDE)]
    run: Annotated[
        str | Path | None, Option(None, switch=("--run", "Record the comparison in this file, or resume it."))
    ]


@takes(CompareOptions)
def compare(
    env: Any,
    policies: Mapping[str, Any] | Sequence[Any] | str | Path,
    *,
    gamma: float,
    **options: Unpack[CompareOptions],
) -> Comparison:
    """Finds the best of several policies with as few transitions as possible.

    Trajectory i of every policy has the same seed and the same length, so that differences between policies are known
    much better than their returns. Policies that are significantly not the best are eliminated on the way; see
    :class:`rido.Race` for the guarantee.

    Args:
        env: as in :func:`rido.evaluate`; not a simulator of your own, for which there is :class:`rido.Race`.
        policies: 2 to 100 of what :func:`rido.evaluate` takes for one: a dictionary by name, a list, a folder of
            checkpoints, or a pattern such as ``checkpoints/*.zip``.
        gamma: discount factor in (0, 1].

    Returns:
        The best policy if there is a clear one, the ranking, all differences, and when policies were eliminated.

    Example:
        >>> result = compare("Pendulum-v1", ["rido:pendulum", "random"], gamma=0.9, budget=20_000, seed=1)
        >>> result.best, result.transitions < 20_000
        ('rido:pendulum', True)
    """
    if factory.is_simulator(env):
        raise ValueError("env must be an environment, got a simulator of your own: tell rido.Race its trajectories")
    named = named_policies(policies)
    problem = Problem.resolve(env, gamma, options)
    settings: dict[str, Any] = {name: options[name] for name in ("budget", "confidence", "tolerance", "starts")}
    settings |= dict(horizon=problem.horizon, gamma=gamma)
    race = Race(tuple(named), **settings)
    lineup, record = problem.open(named), None
    try:
        first = lineup.simulator(next(iter(named)))
        if options["starts"] == "sobol":
            refuse_without_points(first)
        race.lockstep = first.capabilities.in_time_of_one
        entropy = secrets.randbits(64) if options["seed"] is None else options["seed"]
        if options["run"] is not None:
            identity = problem.fingerprints(first)
            del identity["policy_fingerprint"]
            header = ComparisonHeader(
                names=list(named),
                environment=problem.name(),
                **problem.configuration(),
                **settings,
                **identity,
                policies_fingerprint=[policy_fingerprint(lineup.simulator(name)) for name in named],
                seed=options["seed"],
            )
            record = RunFile(options["run"], header, defaults={"seed": entropy, "lockstep": race.lockstep})
            assert isinstance(record.header, ComparisonHeader)
            entropy, race.lockstep = record.header.seed or 0, record.header.lockstep or 0
        sources = _open_sources(race, lineup, entropy, record)
        with Progress(race.budget, shown=options["progress"]) as bar:
            result = _run_from(sources, race, bar, lineup, options["stop"])
    finally:
        if record is not None:
            record.close()
        warnings = lineup.close()
    return replace(result, environment=problem.name(), seed=entropy, notes=(*result.notes, *warnings))


def _open_sources(race: Race, lineup: Lineup, entropy: int, record: RunFile | None) -> dict[str, Source]:
    pieces = deque(record.pieces() if record is not None else ())
    fresh, sources = not pieces, dict[str, Source]()
    for name in race.names:
        running = lineup.simulator(name)
        able = running.capabilities
        refuse_side_by_side(running, name, "a comparison of policies")
        notes = []
        if fresh:  # a run that resumes has noted it
            if able.policy is not None and not able.policy.reproducible:
                notes.append(f"{name} draws random numbers that the seed does not control")
            notes += check_seeds(running, entropy, sobol=race.replicates > 0)
        live = Live(
            running,
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
                    parts = [*collect(sources[name], Wanted(number, trajectories, lengths, groups), bar)]
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
