"""The index.

Comes in: documents, terms and vectors. Goes out: rankings and texts. Must not know how text is parsed, analysed or
embedded, nor how rankings are used. The default engine is `sqlite`, one file that any number of readers and one writer
share; no other package knows SQL. The rest of qmd knows the protocols of `base` and the records of `records`.
"""
