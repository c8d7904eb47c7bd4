"""MCP and HTTP server of one index, for editors, agents and the command line.

Protocol messages come in and are checked; records of the retrieval pipeline go out, rendered for that protocol. The
package does not know SQL, models or terminals, and imports nothing heavy until a server starts.
"""

from __future__ import annotations

__all__: list[str] = []
