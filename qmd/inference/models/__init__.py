"""Model files: names and addresses come in; records, folders and the file to open go out.

The package contains the catalogue and the formats on disk. It must not open a session, and knows no hub:
`qmd.plugins.models` fetches.
"""
