"""evaluate(): the loop that asks a strategy, collects and tells it; the time budget, progress and results.

May import everything but the command line, integrations, studies and the paper. A new option of evaluate() starts in
:mod:`rido.evaluation.evaluate`, a new number in its result in :mod:`rido.evaluation.result`.
"""
