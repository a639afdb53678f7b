"""Pod Security ``restricted``, and a user that is the same everywhere."""

from __future__ import annotations

from shapetrace_api.pod import PodOptions

from shapetrace_operator.objects import Object

USER_ID = 10001
"""Fixed: an image without a user of its own is refused under ``runAsNonRoot``."""


def pod_security(options: PodOptions) -> Object:
    """The pod's security context."""
    asked = options.security_context
    user = (asked.run_as_user if asked else None) or USER_ID
    context: Object = {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": (asked.run_as_group if asked else None) or user,
        "fsGroup": (asked.fs_group if asked else None) or user,
        # large model volumes are not walked through at each start
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if asked and asked.supplemental_groups:
        context["supplementalGroups"] = list(asked.supplemental_groups)
    return context


def container_security(read_only: bool = True) -> Object:
    """A container's security context."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": read_only,
        "capabilities": {"drop": ["ALL"]},
    }
