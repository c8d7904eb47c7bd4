"""The index: documents, terms and vectors come in, rankings and texts go out.

An engine holds it: `sqlite`, one file that any number of readers and one writer share; no other package knows SQL.
The rest of qmd knows the protocols of `base` and the records of `records`.
The store must not know how text is parsed, analysed or embedded, nor what becomes of a ranking.
"""
