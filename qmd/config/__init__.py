"""Where qmd's files lie and what the user wrote in `index.yml`.

Comes in: environment, working directory, the YAML file. Goes out: `Locations`, `Config`, edits that keep comments, and
the trust decision for project-local files. Must not know of indexes, models or terminals.
"""
