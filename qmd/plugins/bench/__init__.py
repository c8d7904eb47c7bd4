"""Queries with the files that they should find come in; how well and how fast an index answers them goes out.

Reads fixtures of tobi/qmd. It must not know how retrieval works, only that it answers.
"""
