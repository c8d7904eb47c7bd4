"""Models: text comes in, vectors, relevance and expansions go out; this package must not know the store, files or commands."""
