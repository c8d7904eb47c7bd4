"""Files of models that are not built in: `fetch` gets them, `formats` reads and converts them.

Names, addresses, archives and folders come in; complete files, ONNX graphs of our own and records of them go out. It
does not run searches, and no other plug-in but `servers` opens a connection to another machine.
"""
