"""Program forms that derivatives are taken of: made one after another of the bound program."""
