"""`python -m gossamer` is `gossamer`."""

from gossamer.cli.app import main

if __name__ == "__main__":
    main()
