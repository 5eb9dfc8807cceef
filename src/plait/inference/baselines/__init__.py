"""Simple baselines of each task: measured with scikit-learn, compared with a trained model."""

from plait.inference.baselines.comparing import best_in, best_of, explain_shortfall, list_shortfalls
from plait.inference.baselines.measuring import COSINE, FROZEN, TFIDF, measure

__all__ = [
    "COSINE",
    "FROZEN",
    "TFIDF",
    "best_in",
    "best_of",
    "explain_shortfall",
    "list_shortfalls",
    "measure",
]
