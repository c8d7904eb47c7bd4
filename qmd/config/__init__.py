"""Paths, settings and trust of an index.

Comes in: environment, working directory, the YAML file. Goes out: `Locations`, `Config`, edits that keep comments, and
the trust decision for project-local files. Must not know indexes, models or terminals.
"""
