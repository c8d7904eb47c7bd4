"""Processes that stay to answer searches: their start, record, socket and end, and the index that asks one.

A search request comes in on either side of the socket; a response goes out. It is a library for `mcp`, and does not
know MCP.
"""
