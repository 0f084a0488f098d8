"""``rido card``: the evaluation results of a model card."""

from pathlib import Path
from typing import Annotated

import typer

from rido.cli.console import require_writable
from rido.cli.options import Output, command, option


@command()
def card_command(
    run: Annotated[Path, typer.Argument(help="A file that rido evaluate --run wrote.")],
    name: Annotated[str | None, option("Name of the model (default: the policy's).")] = None,
    output: Annotated[
        Path | None, option("The file to write (default: standard output).", None, "--output", "-o")
    ] = None,
) -> Output:
    """Write the evaluation results of a recorded run as a model card of the Hugging Face hub has them."""
    from rido.evaluation.recorded import read_run
    from rido.integrations.model_card import model_card

    if output is not None:
        require_writable("output", output)
    card = model_card(read_run(run), name=name)
    if output is not None:
        output.write_text(card, encoding="utf-8")
    text = card.removesuffix("\n") if output is None else f"model card of {run}: {output}"
    return Output({"run": str(run), "card": card}, text)
