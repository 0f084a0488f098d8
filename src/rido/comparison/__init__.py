"""compare(): which of several policies is better. Races on common seeds, differences, gates and recorded results.

May import evaluation and everything below it. A new kind of gate goes into :mod:`rido.comparison.gate`, another
boundary of a race into :mod:`rido.comparison.sequential`, another tool's file of returns into
:mod:`rido.comparison.tables`.
"""
