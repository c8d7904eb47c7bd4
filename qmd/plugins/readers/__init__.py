"""Readers of files that are not plain text → markdown for the index and the screen. Each reader gets a file's bytes,
takes time in proportion to them and returns a bounded text. None opens another file or an address.
"""
