"""Serves one index to editors, agents and the command line: MCP, HTTP, the warm process.

Requests come in as protocol messages, are checked, and go out as the records of the retrieval pipeline, rendered for
that protocol. It must not know SQL, models or terminals, and nothing heavy is imported until a server is started.
"""

from __future__ import annotations

__all__: list[str] = []
