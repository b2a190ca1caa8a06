"""`python -m tilescope`: the command line."""

from tilescope.cli import main

if __name__ == "__main__":
    main()
