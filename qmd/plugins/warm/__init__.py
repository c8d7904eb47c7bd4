"""Warm processes, which stay to answer searches: start, record, socket and end, and the index that uses one.

Search requests come in on both sides of the socket; responses go out. It is a library for `mcp`, and does not know MCP.
"""
