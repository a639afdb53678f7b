"""Kubernetes objects that several tests make."""

from __future__ import annotations

from cluster import Cluster

SECRET = "shapetrace-s3"


def make_secret(cluster: Cluster, namespace: str, access_key: str, secret_key: str, name: str = SECRET) -> None:
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": {"AWS_ACCESS_KEY_ID": access_key, "AWS_SECRET_ACCESS_KEY": secret_key},
        }
    )
