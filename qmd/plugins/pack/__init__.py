"""A question and a number of tokens come in; quotations from several notes go out, each under its address, in as many
tokens at most. It must not know how notes are found."""
