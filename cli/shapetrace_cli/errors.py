"""How a command ends: the errors a person reads, and the exit codes that scripts read."""

from __future__ import annotations

EXIT_FAILED = 1
"""It ran, and the answer is bad: an object is missing or differs, a run did not end well."""
EXIT_USAGE = 2
"""It could not be begun: an argument, a file, a right, an address is wrong. The code click uses too."""
EXIT_INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""


class CliError(Exception):
    """What happened, where, and what to do; shown without a traceback.

    ``hint`` is printed on a line of its own. ``exit_code`` is :data:`EXIT_FAILED` or :data:`EXIT_USAGE`.
    """

    def __init__(self, message: str, hint: str = "", exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class UsageError(CliError):
    """Something in the arguments, files or addresses that the person gave."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint, EXIT_USAGE)
