"""The files of models that are not built in: fetched from a hub, brought in archives, or in a folder of the user's own.

In come names, addresses and folders; out go files that are whole, and records of what they hold. It must not know what
runs a model, and it alone opens a connection to a hub.
"""
