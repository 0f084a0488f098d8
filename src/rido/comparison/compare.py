"""compare(): which of several policies is better, and is the difference significant?"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Required, Unpack

from rido.comparison.comparison import Comparison
from rido.comparison.race import Race
from rido.core import checks
from rido.core.options import REQUIRED, SPEND, Option, declares, takes
from rido.core.trajectories import concatenate
from rido.evaluation.collector import Collector
from rido.evaluation.problem import Problem, policy_fingerprint
from rido.evaluation.progress import Progress
from rido.policies.files import named_policies
from rido.record.database import RunFileError
from rido.record.records import COMPARISON, DOUBTS, NOTES, REMARKS, Piece
from rido.record.runfile import RunFile
from rido.simulators import factory
from rido.simulators.base import refuse_memory
from rido.simulators.lineup import Lineup
from rido.simulators.options import Options
from rido.simulators.sobol import check_seeds, refuse_without_points

DECIDE = "What to decide"
"""Heading of the options of a decision."""

_LOCKSTEP = "lockstep"
_SETTINGS = ("horizon", "budget", "gamma", "confidence", "tolerance", "starts", _LOCKSTEP)  # of a race, in a run file


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
        The best policy if there is a clear one, the ranking, all differences, and who dropped out when.

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
            refuse_without_points(first, reseed=options["reseed"])
        race.lockstep = first.capabilities.in_time_of_one
        entropy = secrets.randbits(64) if options["seed"] is None else options["seed"]
        if options["run"] is not None:
            identity = problem.fingerprints(first)
            del identity["policy_fingerprint"]
            configuration = {
                COMPARISON: list(named),
                "environment": problem.name(),
                **problem.configuration(),
                **settings,
                **identity,
                "policies_fingerprint": [policy_fingerprint(lineup.simulator(name)) for name in named],
                "seed": options["seed"],
                _LOCKSTEP: None,
            }
            record = RunFile(options["run"], configuration, defaults={"seed": entropy, _LOCKSTEP: race.lockstep})
            entropy, race.lockstep = record.configuration["seed"], record.configuration.get(_LOCKSTEP, 0)
        result, notes, doubts = _collect(race, lineup, entropy, record, options["progress"], options["stop"])
    finally:
        if record is not None:
            record.close()
        warnings = lineup.close()
    result = replace(result, environment=problem.name(), seed=entropy, reproducible=not notes)
    return replace(result, notes=(*notes, *doubts, *warnings))


def _collect(
    race: Race,
    lineup: Lineup,
    entropy: int,
    record: RunFile | None,
    progress: bool | None,
    stop: Callable[[Comparison], bool] | None,
) -> tuple[Comparison, list[str], list[str]]:
    """Runs the race; returns its result, why it may not be reproducible, and warnings about the policies."""
    pieces = deque(record.pieces() if record is not None else ())
    notes: list[str] = []
    remarks: list[str] = []
    doubts: list[str] = []
    for name in race.names if not pieces else ():
        able = lineup.simulator(name).capabilities
        doubts += [] if able.policy is None else [f"{name}: {warning}" for warning in able.policy.warnings]
        refuse_memory(lineup.simulator(name), name)
        if able.policy is not None and not able.policy.reproducible:
            notes.append(f"{name} draws random numbers that the seed does not control")
        notes += check_seeds(lineup.simulator(name), entropy, sobol=race.replicates > 0)
    process: dict[str, Any] = dict(horizon=race.horizon, gamma=race.gamma, entropy=entropy, record=record)
    collectors: dict[str, Collector] = {}
    with Progress(race.budget, shown=progress) as bar:
        while (asked := race.ask()) is not None:
            names, schedule = asked
            lineup.expect(names)
            lengths, told = schedule.lengths, {}
            groups = race.dealt(lengths)
            for name in names:
                running = lineup.simulator(name)
                if name not in collectors:
                    collectors[name] = Collector(running, replicates=race.replicates, pieces=pieces, **process)
                collectors[name].round = piece_round(race, name)
                told[name], _ = collectors[name].collect(lengths, groups, bar)
                found = collectors[name].found
                notes, remarks = [*notes, *found.notes], [*remarks, *found.remarks]
            race.tell(told)
            for name in names:
                if name not in race.racing:
                    notes += lineup.dismiss(name)
            bar.describe(f"{race.leader} leads, {len(race.racing)} of {len(race.names)} are left")
            if stop is not None and checks.called("stop", stop, race.result()):
                break
    notes, remarks = list(dict.fromkeys(notes)), list(dict.fromkeys(remarks))
    if record is not None:
        notes, remarks = record.add_notes(notes), record.add_notes(remarks, REMARKS)
        doubts = record.add_notes(doubts, DOUBTS)
    seconds = sum(collector.seconds for collector in collectors.values())
    return replace(race.result(), seconds=seconds, remarks=tuple(remarks)), notes, doubts


def piece_round(race: Race, name: str) -> int:
    """Returns the number under which a run file keeps the pieces of a policy in the round that is asked for."""
    return race.rounds * len(race.names) + race.names.index(name)


def read_comparison(path: str | Path) -> Comparison:
    """Reads the file of a comparison; one that is being written is fine too.

    All numbers are computed again from the recorded trajectories.

    Args:
        path: the file that ``compare(run=...)`` wrote.

    Returns:
        The comparison up to the last round that was finished.
    """
    with RunFile.read(path) as file:
        pieces, found = list(file.pieces()), file.configuration
    names = found.get(COMPARISON)
    if names is None:
        raise RunFileError(f"run file {path} is of an evaluation, not of a comparison")
    race = Race(names, **{name: found[name] for name in _SETTINGS if name in found})
    by_round: dict[int, list[Piece]] = {}
    for piece in pieces:
        by_round.setdefault(piece.round, []).append(piece)
    while (asked := race.ask()) is not None:
        told = {name: by_round.get(piece_round(race, name), []) for name in asked[0]}
        batches = {name: concatenate([part.trajectories for part in parts]) for name, parts in told.items() if parts}
        if len(batches) < len(told) or any(len(batch) < asked[1].trajectories for batch in batches.values()):
            break
        race.tell(batches)
    if race.rounds == 0:
        raise RunFileError(f"run file {path} has no finished round yet")
    notes = found.get(NOTES, [])
    return replace(
        race.result(),
        environment=found["environment"],
        seed=found["seed"],
        reproducible=not notes,
        seconds=sum(piece.seconds for piece in pieces),
        notes=(*notes, *found.get(DOUBTS, [])),
        remarks=tuple(found.get(REMARKS, [])),
    )
