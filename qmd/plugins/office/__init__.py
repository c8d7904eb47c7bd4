"""PDF, Word, slides and sheets → HTML whose headings name its places, of which the reader of HTML makes markdown.

Each function gets a file's bytes in a process of its own, with bounds of time and memory and without a network.
"""
