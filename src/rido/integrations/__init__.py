"""rido inside other tools: the SB3 callback, experiment trackers, model cards, and the server of the live page.

May import evaluation and everything below it. One module for each tool.
"""
