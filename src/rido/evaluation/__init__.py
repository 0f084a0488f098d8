"""evaluate(): the loop that asks a strategy, collects and tells it; the time budget, progress and results.

May import predictors and everything below them. A new option of evaluate() starts in :mod:`rido.evaluation.evaluate`, a
new number in its result in :mod:`rido.evaluation.result`.
"""
