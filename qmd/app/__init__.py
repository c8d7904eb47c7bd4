"""What a request means: a caller's wishes come in; the query, the scope, the options and the models needed go out.

Every front end comes through here, so the command line, MCP, HTTP and Python agree.
It must not know terminals, protocols or how results are shown.
"""
