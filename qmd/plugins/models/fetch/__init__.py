"""Downloads of models from a hub, and archives of models.

Names and archives come in; complete, checked files go out. The package does not know what the files contain.
"""
