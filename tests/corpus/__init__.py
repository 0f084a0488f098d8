"""Environments and policies as ordinary people write them, each run against a plain loop."""
