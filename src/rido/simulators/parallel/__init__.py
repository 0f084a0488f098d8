"""Simulators with a pool of workers: processes on one machine, or actors of a Ray cluster."""
