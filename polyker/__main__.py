"""`python -m polyker`: the same as the command `polyker`."""

from polyker.cli import main

if __name__ == "__main__":
    main()
