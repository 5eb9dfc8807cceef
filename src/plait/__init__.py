"""plait: one text encoder, many sentence tasks, trained together."""

__version__ = "0.1.0"
