"""The API of a ProfileRun: spec and status as pydantic models, and the CustomResourceDefinition made from them."""
