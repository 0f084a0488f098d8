"""Model cards: the evaluation results of a run as the Hugging Face hub reads them; needs the extra ``hub``."""

from typing import Any

from rido.core.digits import to_digits
from rido.core.extras import import_extra
from rido.evaluation.recorded import RecordedRun


def model_card(run: RecordedRun, *, name: str | None = None) -> str:
    """Returns the metadata block of a model card with the result of a run, and a paragraph on how it was measured.

    The metric is ``mean_reward``, whose value is the estimated return. The interval is that of this mean. It is not the
    standard deviation of returns, which says how much episodes differ.

    Args:
        run: what :func:`rido.evaluation.recorded.read_run` read.
        name: of the model; the policy's if not given.

    Returns:
        YAML between two lines ``---``, and Markdown.
    """
    hub = import_extra("a model card", "huggingface_hub.repocard_data", "hub")
    from rido.plots.markdown import escaped

    found, evaluation = run.evaluation.to_dict(), run.evaluation
    measured = ("confidence", "interval_low", "interval_high", "standard_error", "horizon", "gamma", "transitions")
    arguments: dict[str, Any] = {key: found[key] for key in (*measured, "trajectories", "strategy", "critic", "seed")}
    if "deterministic" in run.configuration:
        arguments["deterministic"] = run.configuration["deterministic"]
    result = hub.EvalResult(
        task_type="reinforcement-learning",
        task_name="reinforcement-learning",
        dataset_type=evaluation.environment,
        dataset_name=evaluation.environment,
        metric_type="mean_reward",
        metric_name="mean_reward (expected return with a 95% confidence interval)",
        metric_value=evaluation.value,
        metric_args=arguments,
    )
    data = hub.ModelCardData(
        model_name=name or evaluation.policy, eval_results=[result], tags=["reinforcement-learning"]
    )
    value, low, high = to_digits(evaluation.value, *evaluation.interval())
    lines = [
        "---",
        data.to_yaml(),
        "---",
        "",
        "## Evaluation",
        "",
        f"Expected return in {escaped(evaluation.environment)}: **{value}**, 95% confidence interval [{low}, {high}]. "
        f"Measured by rido from {evaluation.transitions:,} transitions in {evaluation.trajectories:,} trajectories of "
        f"up to {evaluation.schedule.horizon} steps, discount {evaluation.estimate.gamma:g}, seed {evaluation.seed}.",
        *(line for warning in evaluation.warnings for line in ("", f"Warning: {escaped(warning)}")),
    ]
    return "\n".join(lines) + "\n"
