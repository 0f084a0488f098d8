"""rido inside other tools: the callback for Stable-Baselines3.

May import evaluation and everything below it. One module for each tool.
"""
