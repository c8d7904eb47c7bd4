"""A question and a number of tokens come in; quotations from several notes go out, each under its address."""
