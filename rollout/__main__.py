"""`python -m rollout`."""

from rollout.cli.entry import main

if __name__ == "__main__":
    main()
