"""Suites: several policies in several tasks with one budget, and the leaderboard that they lead to.

May import comparison and everything below it. A field of a task starts in :mod:`rido.suite.leaderboard`, how the budget
is divided in :mod:`rido.suite.race`.
"""
