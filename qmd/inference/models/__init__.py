"""Model files: names and addresses come in; folders with whole, checked files go out.

The catalogue, what lies on disk and in which format, and fetching what is missing.
It must not open a session.
"""
