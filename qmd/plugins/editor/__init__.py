"""A note and a line come in; the user's editor, Obsidian or the desktop opens it. It does not know about searches."""
