"""``python -m shapetrace_cli``: the same as the script ``shapetrace``."""

from shapetrace_cli.main import main

if __name__ == "__main__":
    main()
