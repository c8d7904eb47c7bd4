"""Model files: names and addresses come in; records, folders and the file to open go out.

The catalogue, and what lies on disk in which format.
It must not open a session, and knows no hub: `qmd.plugins.models` fetches.
"""
