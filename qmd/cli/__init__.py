"""The `qmd` command: arguments come in; results on stdout, the rest on stderr, and an exit status go out.

Each command is a module that is imported when it is used, so `qmd search` pays for nothing but searching.
It must not know SQL, model files, or protocols: those are asked through the packages below.
"""
