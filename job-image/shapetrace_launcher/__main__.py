"""``python3 -m shapetrace_launcher``: the main process of the engine's container."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from shapetrace_contract import message
from shapetrace_contract.reasons import Reason, exit_code
from shapetrace_contract.settings import SettingError

from shapetrace_launcher.cause import Answer
from shapetrace_launcher.run import Launcher, to_stdout
from shapetrace_launcher.settings import Settings
from shapetrace_launcher.signals import Signals


def main(environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> int:
    """The exit code of the table in docs/contract.md; the same in words in the termination message."""
    with Signals() as signals:
        try:
            settings = Settings.from_environment(environment)
        except SettingError as error:
            final = Answer(exit_code(Reason.BAD_CONFIGURATION), Reason.BAD_CONFIGURATION, str(error), drained=False)
        else:
            final = Launcher(settings, environment, signals, to_stdout, clock).run()
    to_stdout(f"shapetrace_launcher: exit {final.code}, {final.reason}: {final.message}\n".encode(errors="replace"))
    message.leave(final.to_termination().to_json(), environment)
    return final.code


if __name__ == "__main__":
    sys.exit(main(os.environ))
