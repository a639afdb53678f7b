"""The protocol of a model, and how one of the user's is found.

``--model module:factory`` names a function ``factory(configuration) -> model``; ``configuration`` is
:class:`shapetrace_engine.configuration.Configuration` (its ``rank``, ``tensor`` and ``options`` among it) with
torch.distributed initialised. The model has two methods, and may have a third:

``inputs(size) -> tuple of tensors``
    The static input buffers of a step of ``size`` requests, the same tensors at every call. The first one's leading
    dimension is its number of rows.
``forward(*inputs, variants) -> tensor``
    One step. ``variants`` maps each ``--axis`` to its value, for example ``{"lora": "nolora"}``.
``state() -> {axis: value}`` (optional)
    The variants that the last step really ran; recorded as a witness beside the label.
"""

from __future__ import annotations

import importlib
from typing import Any

from shapetrace_engine.configuration import Configuration, ConfigurationError


def load(made: Configuration) -> Any:
    """The user's model; :class:`ConfigurationError` says what is wrong with its name."""
    module, _, name = made.model.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"--model {made.model}: {error}; is its folder on PYTHONPATH?") from None
    except AttributeError:
        raise ConfigurationError(f"--model {made.model}: {module} has no {name}") from None
    model = factory(made)
    for method in ("inputs", "forward"):
        if not callable(getattr(model, method, None)):
            raise ConfigurationError(f"--model {made.model}: the model has no method {method}()")
    return model
