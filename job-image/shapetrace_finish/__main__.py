"""``python3 -m shapetrace_finish``: SHAPETRACE_RUN, _STORE, _ENGINE and _CAPTURE say what to finish.

Exit 0 means that a manifest exists, whatever its verdict; 44 BadConfiguration, 60 FinishStorage, 61 NothingToFinish.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from shapetrace_contract.message import Termination, leave
from shapetrace_contract.reasons import Reason, exit_code
from shapetrace_contract.settings import (
    CaptureSettings,
    EngineSettings,
    ImageSettings,
    RunId,
    SettingError,
    StoreSettings,
)
from shapetrace_traces.store import StoreError, StoreMisconfigured, open_store

from shapetrace_finish.patience import Patience
from shapetrace_finish.run import BrokenManifestError, Finish, NothingToFinishError


def main(
    environment: Mapping[str, str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Finish the attempt that ``environment`` names and leave a termination message; the exit code."""
    try:
        run = RunId.from_env(environment)
        finish = Finish(
            store=open_store(StoreSettings.from_env(environment), run, environment),
            run=run,
            engine=EngineSettings.from_env(environment),
            capture=CaptureSettings.from_env(environment),
            patience=Patience(clock, sleep),
            say=_say,
            image=ImageSettings.from_env(environment) if ImageSettings.ENV in environment else None,
        )
        leave(finish(), environment)
    except (SettingError, StoreMisconfigured) as error:
        return _fail(Reason.BAD_CONFIGURATION, error, environment)
    except NothingToFinishError as error:
        return _fail(Reason.NOTHING_TO_FINISH, error, environment)
    except (StoreError, BrokenManifestError) as error:
        return _fail(Reason.FINISH_STORAGE, error, environment)
    return 0


def _fail(reason: Reason, error: Exception, environment: Mapping[str, str]) -> int:
    _say(f"{reason}: {error}")
    code = exit_code(reason)
    leave(Termination(reason.value, str(error), exitCode=code).to_json(), environment)
    return code


def _say(text: str) -> None:
    print(f"finish: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(os.environ))
