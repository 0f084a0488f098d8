"""The record of a run: an SQLite file of plain records, and fingerprints that say which run it is.

May import core. A new table of the run file, an upgrade of older files, and a new kind of content that a fingerprint
reads belong here.
"""
