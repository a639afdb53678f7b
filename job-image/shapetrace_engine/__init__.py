"""The engine ``torch``: a small tensor-parallel decoder, or a model of the user's, captured shape by shape."""
