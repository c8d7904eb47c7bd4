"""Folders and raw bytes come in; file lists and parsed documents (title, headings, metadata) go out.

It must not know the index, the models or the terms that search uses. It reports what it cannot read: a skipped path
with a reason, a warning on the document, or `UnindexableFileError`.
"""
