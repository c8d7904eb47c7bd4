"""Judged queries and a way to search come in; metrics, timings and comparisons of runs go out.

Reads BEIR folders, TREC files and the original's fixtures, and makes known-item queries from an index.
It must not know how retrieval works, only that it answers.
"""
