"""Text for people and programs.

Takes responses, documents, status records and display options; returns strings that end with a line feed. This package
must not know the index, files, models, or the target of the text.
"""
