"""Files that are no text as they stand → the markdown that is indexed and shown. Each reader gets a file's bytes, takes
time in proportion to them and gives a bounded text. None opens another file or an address.
"""
