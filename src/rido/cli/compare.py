"""``rido compare``: which of several policies is better, and is the difference significant?"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from rido.cli.console import may_run_code, require_writable
from rido.cli.options import EnvArgument, JsonOption, Output, command, option
from rido.comparison.compare import DECIDE, compare
from rido.comparison.comparison import Comparison
from rido.comparison.gate import Gate, GateName, Outcome, Verdict
from rido.core.options import ESTIMATE, SPEND
from rido.policies.files import named_policies, parse_policies

_STATUS: dict[Outcome, int] = {"pass": 0, "fail": 3, "undecided": 4}
_SHOW = "What to write"


@command(compare)
def compare_command(
    env: EnvArgument,
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="POLICY",
            help="What rido evaluate --policy takes, a folder or a pattern of checkpoints; NAME=POLICY names one.",
        ),
    ],
    gamma: Annotated[float | None, option("Discount factor in (0, 1].", ESTIMATE)] = None,
    budget: Annotated[int | None, option("Transitions to spend at most, for all policies.", SPEND)] = None,
    results: Annotated[
        bool,
        option(
            "Compare recorded returns: all arguments are files (CSV, JSON, npz), and nothing is simulated.",
            ESTIMATE,
            "--results",
        ),
    ] = False,
    gate: Annotated[
        GateName | None,
        option("Decide about the others against --baseline: exit status 0 pass, 3 fail, 4 undecided.", DECIDE),
    ] = None,
    baseline: Annotated[str | None, option("One of the policies, for --gate.", DECIDE, metavar="POLICY")] = None,
    report: Annotated[Path | None, option("Write an HTML page.", _SHOW)] = None,
    markdown: Annotated[
        str | None, option("Write a table in Markdown; - is standard output.", _SHOW, metavar="FILE")
    ] = None,
    as_json: JsonOption = False,
    **options: Any,
) -> Output:
    """Find the best of several policies with as few transitions as possible.

    Trajectory i of every policy has the same seed and the same length. Policies that are significantly not the best
    are eliminated.
    """
    named = named_policies([Path(file) for file in (env, *policies)]) if results else parse_policies(policies)
    judge = _gate(gate, baseline, options["tolerance"], named)
    if judge is not None:
        options["tolerance"] = 0.0  # a gate has its own
    if as_json and markdown == "-":
        raise ValueError("markdown must be a file where --json writes to standard output, got -")
    for name, path in (("report", report), ("markdown", None if markdown in (None, "-") else Path(markdown))):
        if path is not None:
            require_writable(name, path)
    if report is not None:
        from rido.plots.report import require_extras

        require_extras()
    if results:
        from rido.comparison.recorded import compare_results

        result = compare_results(named, confidence=options["confidence"], tolerance=options["tolerance"])
    elif gamma is None or budget is None:
        raise ValueError("gamma and budget must be given, as in --gamma 0.99 --budget 100000, but with --results")
    else:
        options["trust"] = may_run_code(*map(str, named.values()), trust=options["trust"])
        if judge is not None:
            options["stop"] = lambda known: judge.judge(known).outcome != "undecided"
        result = compare(env, named, gamma=gamma, budget=budget, **options)
    verdict = None if judge is None else judge.judge(result)
    said = None if verdict is None else _said(gate, verdict, options["confidence"])
    if report is not None:
        from rido.plots.report import write_comparison

        write_comparison(result, report, said)
    if markdown not in (None, "-"):
        Path(markdown).write_text(to_markdown(result, said), encoding="utf-8")
    content = result.to_dict()
    if judge is not None and verdict is not None:
        content["gate"] = {**asdict(judge), **asdict(verdict)}
    text = "\n".join([result.summary(), _aligned(result.table()), *([] if said is None else [said])])
    if markdown == "-":
        text = to_markdown(result, said).removesuffix("\n")
    return Output(content, text, 0 if verdict is None else _STATUS[verdict.outcome])


def _gate(kind: GateName | None, baseline: str | None, tolerance: float, named: dict[str, Any]) -> Gate | None:
    """Returns the gate that was asked for. The baseline is given by its name or as the policy itself."""
    if kind is None and baseline is None:
        return None
    if kind is None or baseline is None:
        raise ValueError("gate and baseline must be given together, as in --gate better --baseline old")
    names = [name for name, policy in named.items() if baseline in (name, str(policy))]
    if len(names) != 1:
        raise ValueError(f"baseline must be one of the policies, {', '.join(named)}, got {baseline!r}")
    return Gate(kind, names[0], tolerance)


def _said(kind: GateName | None, verdict: Verdict, confidence: float) -> str:
    text = f"gate {kind}: {verdict.outcome} at {100 * confidence:g}% confidence: {verdict.why}"
    return " ".join(text.split())  # whatever the names of policies are


def to_markdown(comparison: Comparison, verdict: str | None = None) -> str:
    """Returns a comparison as Markdown, for a pull request; the verdict, if there is one, comes first."""
    from rido.plots.markdown import escaped, table  # plots are slow to import

    head, *_ = comparison.summary().splitlines()
    lines = [f"**{escaped(verdict)}**", ""] if verdict else []
    lines += [escaped(head), ""]
    columns, *rows = comparison.table()
    lines += table(columns, rows)
    lines += ["", comparison.rewards.describe(*comparison.ranking[:2])]
    if comparison.seed is not None:
        lines[-1] += f", seed {comparison.seed}"
    lines += [line for warning in comparison.warnings for line in ("", f"Warning: {escaped(warning)}")]
    return "\n".join(lines) + "\n"


def _aligned(rows: list[tuple[str, ...]]) -> str:
    """Returns rows as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        for row in rows
    )
    return "\n".join("  ".join(line).rstrip() for line in lines)
