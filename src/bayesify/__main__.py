"""`python -m bayesify`: the same as the command `bayesify`."""

from bayesify.cli import main

if __name__ == "__main__":
    main()
