"""Skills that teach an agent to use qmd: markdown files in the package, and commands that show them."""
