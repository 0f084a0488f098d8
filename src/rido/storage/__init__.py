"""The record of a run: an SQLite file of plain records, and fingerprints that say which run it is; others' results.

May import core. A new table of the run file, an upgrade of older files, a new kind of content that a fingerprint reads,
or another tool's file of recorded returns, belongs here.
"""
