"""Text comes in and becomes a note of a collection, which the next search finds. It must not know who has sent it."""
