"""A run's answers to dev, or to rows it left out, fit what scales its probabilities."""
