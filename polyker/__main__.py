"""`python -m polyker`: the same as the command `polyker`."""

from polyker.cli.command import main

if __name__ == "__main__":
    main()
