"""PDF, Word, slides and sheets → HTML with a heading for each place, which the HTML reader turns into markdown.

Each function gets a file's bytes in a process of its own, with bounds of time and memory and without a network.
"""
