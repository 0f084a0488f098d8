"""``rido evaluate``: how good is a policy in an environment?"""

from typing import Annotated, Any

from rido.cli.console import may_run_code, sparkline
from rido.cli.options import EnvArgument, Output, PolicyOption, command, option
from rido.core.options import ESTIMATE
from rido.evaluation.evaluate import evaluate
from rido.evaluation.result import Evaluation


@command(evaluate)
def evaluate_command(
    env: EnvArgument,
    gamma: Annotated[list[float], option("Discount factor in (0, 1]; several share the trajectories.", ESTIMATE)],
    policy: PolicyOption = None,
    **options: Any,
) -> Output:
    """Estimate the expected return of a policy in an environment."""
    options["trust"] = may_run_code(policy, trust=options["trust"])
    result = evaluate(env, policy, gamma=gamma, **options)
    return Output(result.to_dict(), lambda: _show(result))


def _show(result: Evaluation) -> None:
    counts = result.schedule.counts
    print(result.summary())
    print(f"samples per step, {counts[0]:,} of the first to {counts[-1]:,} of the last: {sparkline(counts)}")
