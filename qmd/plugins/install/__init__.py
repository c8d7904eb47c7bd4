"""Settings of other programs, to which qmd adds itself, and the hook that answers a prompt from the notes.

The name of a program comes in; one changed entry of its file goes out, with everything else byte for byte the same. It
must not know how qmd searches or serves.
"""
