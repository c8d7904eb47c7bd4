"""Requests come in as records; their meaning is decided here, once, and answers go out as records.

`Index` searches, reads and keeps up to date one index; the command line, MCP, HTTP, the warm process and Python are
adapters of it: they parse, call and render. Nothing here knows a terminal, a protocol or a way to show a result:
messages during a request go to `Notices` and listeners.
"""
