"""Other programs' settings, in which qmd enters itself, and the hook that answers a prompt from the notes.

What comes in is the name of a program; what goes out is one changed entry of its file, everything else byte for byte.
It must not know how qmd searches or serves.
"""
