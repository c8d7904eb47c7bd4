"""The skills that teach an agent to use qmd: markdown files that ship with the package, and commands that show them."""
