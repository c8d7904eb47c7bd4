"""Questions with the files that they should find come in; how well and how fast an index answers them goes out.

Reads the original's fixtures, and asks for notes by their names. It must not know how retrieval works, only that it
answers.
"""
