"""The engine for an index in one SQLite file: full text in FTS5, everything else in plain tables.

Any number of readers and one writer share the file. No other package knows SQL.
"""
