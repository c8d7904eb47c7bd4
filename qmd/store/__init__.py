"""The index: documents, terms and vectors come in, rankings and texts go out; the only package that knows SQL."""
