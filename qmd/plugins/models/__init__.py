"""Files of models that are not built in: `fetch` downloads them, `formats` reads and converts them.

Names, addresses, archives and folders come in; complete files, ONNX graphs and their records go out. The package does
not run searches, and no other plug-in but `servers` opens a connection to another machine.
"""
