"""Logging in: one configuration for our own requests, and the same for kopf's watches."""

from __future__ import annotations

import dataclasses
from typing import Any

import kopf
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from shapetrace_operator.settings import Settings

USER_AGENT = "shapetrace-operator"
"""What audit logs show beside the field manager."""
CONNECTIONS = 32
"""Workers, watches and lists of one process; more would only queue at the API server."""


async def client(settings: Settings) -> ApiClient:
    """A client with its own configuration: nothing global is set."""
    configuration = Configuration()
    if settings.kubeconfig:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=settings.kubeconfig, client_configuration=configuration, persist_config=False
        )
    else:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    if settings.server:
        configuration.host = settings.server
    configuration.connection_pool_maxsize = CONNECTIONS
    # the work queue tries again; a hidden second try would also hide that an answer was lost
    configuration.retries = None
    # as kopf does: a proxy that the environment names for other purposes stays out of the way
    configuration.client_session_kwargs = {"trust_env": False}
    made = ApiClient(configuration=configuration)
    made.user_agent = USER_AGENT
    return made


def login(kubeconfig: str | None, address: str, **kwargs: Any) -> kopf.ConnectionInfo | None:
    """Credentials for kopf, read anew whenever it asks: tokens of ServiceAccounts rotate.

    ``address`` is the one our own requests use; kopf's own choice in a cluster would need DNS.
    """
    read = kopf.login_with_kubeconfig if kubeconfig else kopf.login_with_service_account
    info = read(**kwargs)
    return dataclasses.replace(info, server=address) if info is not None else None
