"""The encoder, the heads, and the model they make together."""
