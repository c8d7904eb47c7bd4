"""Text comes in and becomes a note of a collection, which the next search finds. It does not know the sender."""
