"""Scalars and small references that several parts of the API share, with the bounds Kubernetes itself gives them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from shapetrace_api.schema import INT_OR_STRING, ApiModel, Rule

MAX_INT32 = 2_147_483_647
"""Seconds and numeric ids of Kubernetes are 32 bits wide."""
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"
"""The quantities a person writes: no sign, no exponent. Kubernetes takes more spellings of the same values."""
LABEL_VALUE_PATTERN = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
_QUALIFIED = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
"""A label, annotation or resource name: an optional DNS prefix, a slash, a name."""

DnsName = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""The name of a Kubernetes object."""
ConfigKey = Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=r"^[-._A-Za-z0-9]+$")]
"""A key of a ConfigMap or Secret."""
QualifiedName = Annotated[str, StringConstraints(min_length=1, max_length=317, pattern=_QUALIFIED)]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=LABEL_VALUE_PATTERN)]


def _number_to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Quantity = Annotated[
    str,
    BeforeValidator(_number_to_text),
    StringConstraints(min_length=1, max_length=32, pattern=QUANTITY_PATTERN),
    # the API server takes `cpu: 2` and `cpu: "2"`, as it does in pods; Python sees a string
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 32,
            "minLength": 1,
            "pattern": QUANTITY_PATTERN,
            INT_OR_STRING: True,
        }
    ),
]
"""An amount of a resource, such as ``4``, ``500m`` or ``16Gi``; :mod:`shapetrace_api.quantity` reads it."""


def qualified_keys(field: str) -> Rule:
    """Keys of a map are names as Kubernetes has them, and none is ours. OpenAPI has no word for keys, CEL has."""
    return Rule(
        f"self.all(key, key.size() <= 317 && key.matches('{_QUALIFIED}') && !key.startsWith('shapetrace.dev/'))",
        f"{field} has a key that is not of the form [prefix/]name, or begins with shapetrace.dev/, which is reserved",
    )


class LocalReference(ApiModel):
    """An object in the namespace of the run."""

    name: DnsName = Field(description="Name of the object, in the namespace of the run.")


class KeyReference(ApiModel):
    """One key of a ConfigMap or Secret in the namespace of the run."""

    name: DnsName = Field(description="Name of the object, in the namespace of the run.")
    key: ConfigKey = Field(description="Key within the object.")
