"""Models: text comes in; vectors, relevance and expansions go out.

Everything outside sees the three protocols of `base`, and gets their implementations from `loader.load_engines`.
This package must not know the store, files of the user or commands.
"""
