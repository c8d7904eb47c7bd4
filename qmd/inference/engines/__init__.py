"""The three roles, each served by several kinds of model: texts come in; vectors, relevance or sub-queries go out.

An engine is opened from a folder and its settings, and implements a protocol of `qmd.inference.base`. It must not know
where models are fetched from, or which of several was chosen.
"""
