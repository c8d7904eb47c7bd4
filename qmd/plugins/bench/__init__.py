"""Queries with the files that they should find come in; quality and speed of an index's answers go out.

It reads fixtures of tobi/qmd. It must not know how retrieval works, only that it answers.
"""
