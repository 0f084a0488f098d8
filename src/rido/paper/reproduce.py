"""reproduce(): the paper's experiments as resumable tasks, and where their results are written."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rido.core import checks
from rido.evaluation.progress import Progress
from rido.paper import ablations, live, theory
from rido.paper.claims import Claim, check_claims
from rido.paper.domains import ADDITIONAL, EXAMPLES, GAMMAS, MAIN, PARTS, BankSource, Domain, precision, record
from rido.paper.errors import CRITIC_SHARE, FEWEST_CRITIC_RUNS, errors_of_strategies, evaluate_with_critic
from rido.paper.figures import draw
from rido.paper.page import write_page
from rido.paper.policies import find_policy
from rido.paper.storage import Job, keep, read, run_tasks, write_whole

_NEEDED = ("matplotlib", "mujoco")
SECTIONS = ("main", "schedules", "beta", "batch", "additional", "theory", "runtime")

_FULL_STUDY = 1000  # runs from which banks have their full size
_FEW_RUNS = 50  # with fewer, critics are run at one budget, and running times are measured in one setting
_ARRAYS = ("errors", "counts", "counts_low", "counts_high", "weights")
_SPOT_CHECKS = (("pendulum", 5), ("ant", 25))  # domain, and runs on the bank for each run of real steps
_FEWEST_SPOT_RUNS = 10

Cell = tuple[dict[str, Any], Job]


@dataclass(frozen=True)
class Reproduction:
    """The paper's experiments with a given number of runs."""

    out: Path  # folder for all data and pictures
    runs: int  # repetitions of every point
    agents: str | Path | None  # a folder of trained agents, "hub", or None for the shipped ones

    def source(self, domain: Domain, gamma: float) -> BankSource:
        """Returns the bank of a domain. A study with fewer runs has a smaller bank."""
        return BankSource(
            domain=domain,
            gamma=gamma if domain.own_policy_of_gamma else None,
            policy=find_policy(domain, self.agents),
            rows=domain.part * math.ceil(PARTS * min(self.runs, _FULL_STUDY) / _FULL_STUDY),
            folder=self.out / "banks",
        )

    def cells(self, section: str) -> list[Cell]:
        """Returns the tasks of a section that can run side by side, each with its settings."""
        match section:
            case "main":
                return self._errors(MAIN)
            case "additional":
                return self._errors(ADDITIONAL)
            case "schedules":
                return [cell for cell in self._errors(MAIN) if cell[0]["budget"] == cell[0]["schedule_budget"]]
            case "beta":
                return self._ablation([(beta, ablations.BETA_BATCH) for beta in ablations.BETAS])
            case "batch":
                return self._ablation([(ablations.BATCH_BETA, batch) for batch in ablations.BATCHES])
            case "theory":
                return self._theory()
        return []

    def alone(self, section: str) -> list[Cell]:
        """Returns the tasks of a section that must run alone, because they measure time or run simulators."""
        if section == "main":
            return list(self._spot_checks())
        if section == "runtime":
            settings = live.SETTINGS[:1] if self.runs < _FEW_RUNS else live.SETTINGS
            repetitions = max(1, min(5, self.runs // 50))
            domains = {domain.name: domain for domain in (*MAIN, *ADDITIONAL)}
            return [
                self._cell(
                    {"domain": name, "budget": budget, "batch": batch, "repetitions": repetitions},
                    partial(live.running_time, self.source(domains[name], GAMMAS[0]), budget, batch, repetitions),
                    "runtime",
                )
                for name in live.PAPER_SECONDS
                for budget, batch in settings
            ]
        return []

    def banks(self, section: str) -> list[Job]:
        """Returns the tasks that record the banks of a section."""
        domains = {"main": MAIN, "schedules": MAIN, "additional": ADDITIONAL, "beta": EXAMPLES, "batch": EXAMPLES}
        chosen = domains.get(section, ADDITIONAL[:1] if section == "theory" else ())
        sources = dict.fromkeys(self.source(domain, gamma) for domain in chosen for gamma in GAMMAS)
        return [Job(path, partial(record, source, path)) for source in sources for path in source.parts()]

    def _cell(self, key: dict[str, Any], work: Any, *place: str) -> Cell:
        name = "-".join(f"{value:g}" if isinstance(value, float) else str(value) for value in key.values())
        name = re.sub(r"[^\w.]+", "-", f"{name}-{self.runs}")
        return key, Job(self.out.joinpath("cells", *place, f"{name}.json"), work)

    def _errors(self, domains: Sequence[Domain]) -> list[Cell]:
        cells = []
        critic_runs = min(self.runs, max(FEWEST_CRITIC_RUNS, self.runs // CRITIC_SHARE))
        for domain in domains:
            for gamma in GAMMAS:
                source = self.source(domain, gamma)
                for budget in domain.budgets:
                    key = {"domain": domain.name, "gamma": gamma, "budget": budget}
                    critic = self.runs >= _FEW_RUNS or budget == domain.schedule_budget
                    more = {"horizon": domain.horizon, "batch": domain.batch, "schedule_budget": domain.schedule_budget}
                    for kind, work, runs in (
                        ("plain", errors_of_strategies, self.runs),
                        *([("critic", evaluate_with_critic, critic_runs)] if critic else []),
                    ):
                        _, task = self._cell(key, partial(work, source, gamma, budget, runs), kind, source.name)
                        cells.append(({**key, **more}, task))
        return cells

    def _ablation(self, settings: Sequence[tuple[float, int]]) -> list[Cell]:
        return [
            self._cell(
                {"domain": domain.name, "budget": budget, "beta": beta, "batch": batch},
                partial(ablations.ablate, self.source(domain, 1.0), budget, beta, batch, self.runs),
                "ablations",
            )
            for domain in EXAMPLES
            for beta, batch in settings
            for budget in reversed(ablations.BUDGETS)
        ]

    def _theory(self) -> list[Cell]:
        cells = [
            self._cell(
                {"what": "regret", "process": process, "budget": budget, "beta": beta},
                partial(theory.regret, process, budget, beta, self.runs),
                "theory",
            )
            for process in theory.PROCESSES
            for budget in reversed(theory.BUDGETS)
            for beta in ("1", "theory")
        ]
        cells += [
            self._cell(
                {"what": "predetermined", "horizon": horizon},
                partial(theory.predetermined, horizon, self.runs),
                "theory",
            )
            for horizon in theory.HORIZONS
        ]
        source = self.source(ADDITIONAL[0], GAMMAS[1])
        grouping = self._cell({"what": "grouping"}, partial(theory.grouping, source, GAMMAS[1]), "theory", source.name)
        return [*cells, grouping]

    def _spot_checks(self) -> Iterator[Cell]:
        domains = {domain.name: domain for domain in MAIN}
        for name, share in _SPOT_CHECKS:
            domain, gamma = domains[name], GAMMAS[1]
            source, runs = self.source(domain, gamma), max(min(_FEWEST_SPOT_RUNS, self.runs // 2), self.runs // share)
            yield self._cell(
                {"spot check": name, "gamma": gamma, "budget": domain.budgets[0], "runs": runs},
                partial(live.spot_check, source, gamma, domain.budgets[0], runs),
                "live",
                source.name,
            )


def reproduce(
    section: str = "all",
    *,
    runs: int = 100,
    out: str | Path = "reproduction",
    agents: str | Path | None = None,
    processes: int | None = None,
    progress: bool | None = None,
) -> list[Claim]:
    """Repeats the paper's experiments and writes data, pictures and a page with a verdict on each of its claims.

    It can be stopped at any time, and resumes when it is called again. Another number of runs is a new study.

    Args:
        section: one of :data:`SECTIONS`, or "all".
        runs: repetitions of every point; the paper's captions say 100 and its text 1,000. Fewer than 50 are a quick
            look: critics are run at one budget of each domain, and running times are measured in one setting.
        out: folder for everything: ``README.md``, pictures, and a JSON and an NPZ file for each section.
        agents: a folder with agents of the RL Baselines3 Zoo, which are the paper's, "hub" to download them, or None
            for those that are shipped.
        processes: number of processes; one for each core if not given.
        progress: whether to show a progress bar; if not given, when standard error is a terminal.

    Returns:
        The claims that were checked, and whether they hold.
    """
    checks.choice("section", section, (*SECTIONS, "all"))
    runs = checks.integer("runs", runs, least=10)
    processes = checks.integer("processes", processes or os.cpu_count() or 1, least=1)
    for package in _NEEDED:  # fail now, not after an hour
        if importlib.util.find_spec(package) is None:
            raise ImportError(f'reproducing the paper needs {package}: pip install "rido[paper]"')
    study = Reproduction(Path(out), runs, agents)
    sections = SECTIONS if section == "all" else (section,)
    _work(study, sections, processes, progress)
    for name in sections:
        _write_section(_summarise(study, name), study.out / name)
    found = {name: json.loads(path.read_text()) for name in SECTIONS if (path := study.out / f"{name}.json").exists()}
    full = {name: _with_arrays(study.out / f"{name}.npz", content) for name, content in found.items()}
    draw(full, study.out)
    claims = check_claims(full)
    write_page(full, claims, study.out / "README.md")
    return claims


def _work(study: Reproduction, sections: Sequence[str], processes: int, progress: bool | None) -> None:
    """Runs what is not done yet: first the banks, then all tasks that can run side by side, then the rest."""
    banks = {task.path: task for name in sections for task in study.banks(name)}
    cells = {task.path: task for name in sections for _, task in study.cells(name)}
    alone = [task for name in sections for _, task in study.alone(name)]
    with Progress(len(banks) + len(cells) + len(alone), shown=progress) as bar:
        for tasks in (banks, cells):
            run_tasks(list(tasks.values()), processes, lambda: bar.advance(1))
        for task in alone:
            if not task.path.exists():
                keep(task, task.work())
            bar.advance(1)


def _summarise(study: Reproduction, name: str) -> dict[str, Any]:
    """Returns the results of a section, how long it took, and the precision of its banks."""
    cells = study.cells(name)
    seconds: dict[str, float] = {}
    for key, task in cells:
        place = str(key.get("domain", name))
        seconds[place] = seconds.get(place, 0.0) + read(task)["seconds"]
    domains = {"main": MAIN, "additional": ADDITIONAL}.get(name, ())
    return {
        "runs": study.runs,
        "cells": _collect((*cells, *study.alone(name))),
        "seconds": seconds,
        "banks": [_about(study.source(domain, gamma), gamma) for domain in domains for gamma in GAMMAS],
    }


def _about(source: BankSource, gamma: float) -> dict[str, Any]:
    return {
        "domain": source.domain.name,
        "gamma": gamma,
        "policy": "its own" if source.policy is None else "/".join(source.policy.parts[-2:]),
        "rows": source.rows,
        **precision(source, gamma),
    }


def _collect(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Returns the results of all tasks, with all strategies of one setting merged."""
    found: dict[str, dict[str, Any]] = {}
    for key, task in cells:
        result = read(task)
        result.pop("seconds", None)
        place = found.setdefault(json.dumps(key), {**key})
        strategies = place.get("strategies", {}) | result.pop("strategies", {})
        place |= result | ({"strategies": strategies} if strategies else {})
    return list(found.values())


def _write_section(content: dict[str, Any], path: Path) -> None:
    """Writes numbers as JSON and arrays as NPZ, where an array's name is its path in the JSON."""
    arrays: dict[str, Any] = {}

    def without_arrays(part: Any, place: str) -> Any:
        if isinstance(part, list):
            return [without_arrays(item, f"{place}/{index}") for index, item in enumerate(part)]
        if not isinstance(part, dict):
            return part
        for name in _ARRAYS:
            if name in part:
                arrays[f"{place}/{name}"] = np.asarray(part[name], dtype=np.float32)
        return {name: without_arrays(item, f"{place}/{name}") for name, item in part.items() if name not in _ARRAYS}

    numbers = without_arrays(content, "")
    with write_whole(path.with_suffix(".npz")) as file:
        np.savez_compressed(file, **arrays)
    with write_whole(path.with_suffix(".json")) as file:
        file.write(json.dumps(numbers, indent=1, allow_nan=False).encode() + b"\n")


def _with_arrays(path: Path, content: Any) -> Any:
    with np.load(path) as arrays:
        for name in arrays.files:
            *places, last = name.split("/")[1:]
            part = content
            for place in places:
                part = part[int(place) if isinstance(part, list) else place]
            part[last] = arrays[name].astype(np.float64)
    return content
