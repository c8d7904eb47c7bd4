"""Folders and raw bytes come in; file lists and parsed documents (title, headings, metadata) go out.

It must not know the index, the models or the terms that search uses.
What it cannot take it says: a skipped path with a reason, a warning on the document, or `UnindexableFileError`.
"""
