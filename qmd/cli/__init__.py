"""The `qmd` command line.

Takes arguments; writes results to stdout and messages to stderr, and returns an exit status. Each command is a module
that is imported at its first use. This package must not know SQL, model files or protocols.
"""
