"""`python -m equimetric` is the command line."""

from equimetric.cli import main

if __name__ == "__main__":
    main()
