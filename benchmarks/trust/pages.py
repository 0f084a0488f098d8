"""Tables of results/trust.md, from cells."""

import numpy as np
from sections import paragraphs, row, rule

LIMITS = {20: 1.25, 50: 1.12, 200: 1.05}  # of the MSE over uniform's on any process, by the budget in T
SOUND, LOW = 0.93, 0.92  # coverage of a process whose warnings are false alarms, and below which they are asked for


def zero_widths(runs):
    """The sentence on intervals of zero width, which is also read back to add up all sections."""
    zero, total = sum(single.zero_widths for single in runs), sum(single.width.size for single in runs)
    return f"Intervals of the default with zero width: {zero:,} of {total:,} runs."


def budgets_of(cells):
    return sorted({cell.budget for cell in cells})


def at(cells, budget):
    return [cell for cell in cells if cell.budget == budget]


def named(value, cell):
    return f"{value} ({cell.source.label})"


def error_page(cells, about):
    """MSE over uniform's at equal transitions, and bias: a summary, then one row for each process and budget."""
    above = "of these whose interval lies above " + " / ".join(f"{LIMITS[budget]:g}" for budget in budgets_of(cells))
    rows = ("processes", above, "geometric mean", "worst, with its 95% interval", "largest bias", "mean absolute bias")
    summary = {name: [] for name in rows}
    tables = []
    for budget in budgets_of(cells):
        chosen = at(cells, budget)
        ratios, biases = [cell.ratio() for cell in chosen], [cell.bias() for cell in chosen]
        middle = np.array([ratio for ratio, _, _ in ratios])
        worst, largest = int(middle.argmax()), int(np.argmax([abs(bias) for bias, _ in biases]))
        ratio, low, high = ratios[worst]
        bias, error = biases[largest]
        summary["processes"].append(len(chosen))
        summary[above].append(sum(low > LIMITS[budget] for _, low, _ in ratios))
        summary["geometric mean"].append(f"{np.exp(np.mean(np.log(np.maximum(middle, 1e-12)))):.3f}")
        summary["worst, with its 95% interval"].append(named(f"{ratio:.2f} [{low:.2f}, {high:.2f}]", chosen[worst]))
        summary["largest bias"].append(named(f"{bias:+.3f} ± {error:.3f}", chosen[largest]))
        summary["mean absolute bias"].append(f"{np.mean([abs(bias) for bias, _ in biases]):.3f}")
        lines = [
            f"At {budget} T:",
            "",
            row(
                "process",
                "MSE over uniform's",
                "bias",
                "coverage",
                "uniform's",
                "warned",
                "uniform",
                "zero width",
                "uniform",
            ),
            rule(9),
        ]
        for cell, (ratio, low, high), (bias, error) in zip(chosen, ratios, biases, strict=True):
            lines.append(
                row(
                    cell.source.label,
                    f"{ratio:.2f} [{low:.2f}, {high:.2f}]",
                    f"{bias:+.3f} ± {error:.3f}",
                    f"{cell.default.coverage:.3f}",
                    f"{cell.uniform.coverage:.3f}",
                    f"{cell.default.warned.mean():.2f}",
                    f"{cell.uniform.warned.mean():.2f}",
                    f"{np.mean(cell.default.width <= 0):.3f}",
                    f"{np.mean(cell.uniform.width <= 0):.3f}",
                )
            )
        tables.append(lines)
    head = [row("", *(f"{budget} T" for budget in budgets_of(cells))), rule(1 + len(budgets_of(cells)))]
    text = (
        f"{about}\nMSE of the default over uniform's, times transitions spent over uniform's; intervals by the "
        "bootstrap.\nBias and its standard error are in standard deviations of uniform's estimate.\n"
        + zero_widths([cell.default for cell in cells])
    )
    return paragraphs(text, head + [row(name, *columns) for name, columns in summary.items()], *tables)


def coverage_page(cells):
    """Coverage of the 95% interval, who is below what is promised, and whether warnings come where they should."""
    head = [
        row("", "strategy", "mean coverage", "lowest", "below 0.92", "warned there", "sound", "warned there", "most"),
        rule(9),
    ]
    low_lines = [row("budget", "process", "coverage", "warned", "uniform's coverage", "warned"), rule(6)]
    for budget in budgets_of(cells):
        chosen = at(cells, budget)
        for strategy in ("default", "uniform"):
            runs = [getattr(cell, strategy) for cell in chosen]
            coverage, warned = (
                np.array(values) for values in zip(*((r.coverage, r.warned.mean()) for r in runs), strict=True)
            )
            low, sound = coverage < LOW, coverage >= SOUND
            head.append(
                row(
                    f"{budget} T",
                    strategy,
                    f"{coverage.mean():.3f}",
                    named(f"{coverage.min():.3f}", chosen[int(coverage.argmin())]),
                    int(low.sum()),
                    f"{warned[low].mean():.2f}" if low.any() else "",
                    int(sound.sum()),
                    f"{warned[sound].mean():.3f}" if sound.any() else "",
                    f"{warned[sound].max():.2f}" if sound.any() else "",
                )
            )
        for cell in chosen:
            if budget >= 50 and cell.default.coverage < LOW:
                low_lines.append(
                    row(
                        f"{budget} T",
                        cell.source.label,
                        f"{cell.default.coverage:.3f}",
                        f"{cell.default.warned.mean():.2f}",
                        f"{cell.uniform.coverage:.3f}",
                        f"{cell.uniform.warned.mean():.2f}",
                    )
                )
    error = np.sqrt(0.95 * 0.05 / cells[0].default.held.size)
    text = (
        f"The same runs. A coverage of 0.95 has a standard error of {error:.3f}.\n"
        f"A process is sound at {SOUND} or more: a warning is a false alarm there."
    )
    return paragraphs(text, head, f"The default below {LOW} at 50 T and more:", low_lines)


def claims_page(cells, budget):
    """Claimed transitions of uniform over what it really needs."""
    lines = [row("process", "median", "10% to 90% of runs", "not told"), rule(4)]
    medians = []
    for cell in at(cells, budget):
        low, middle, high = cell.claims()
        medians.append(middle)
        lines.append(
            row(
                cell.source.label,
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{np.isnan(cell.default.claimed).mean():.3f}",
            )
        )
    text = (
        f"`uniform_transitions` at {budget} T: what is claimed over what uniform really needs for the\nstandard "
        "error that the default really has, Var(return) / Var(estimate) times the mean length of an episode.\nMedians "
        f"are between {np.nanmin(medians):.2f} and {np.nanmax(medians):.2f}. The spread of the runs leaves the truth "
        f"uncertain by about {2 * np.sqrt(2 / cells[0].default.errors.size):.0%} at 95%."
    )
    return paragraphs(text, lines)
