"""Properties are looked for by their content, never by their time: these tests run beside others on few cores."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("shapetrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shapetrace")
