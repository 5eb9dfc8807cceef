"""Masked language model (Devlin et al. 2019): predict masked tokens of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.model.heads import Head
from plait.training.stages.base import STAGE_KINDS, Material, Objective
from plait.training.stages.corpus import OnTexts, every_text, make_corpus
from plait.types import Batch, Tokens

if TYPE_CHECKING:
    from collections.abc import Collection

    from plait.model.interface import Encoder

IGNORED = -100
"""The word of a place that only fills up, which cross entropy passes over."""


class WordHead(Head):
    """Dense, GELU and LayerNorm; then a score per word, by the encoder's own word table."""

    takes = "hidden"

    def __init__(self, encoder: Encoder):
        super().__init__()
        config = encoder.config
        num_words, width = encoder.word_table().shape  # ALBERT's words are narrower than its layers
        self.dense = nn.Linear(encoder.width, width)
        self.norm = nn.LayerNorm(width, eps=config.get("layer_norm_eps", 1e-12))
        self.bias = nn.Parameter(torch.zeros(num_words))
        nn.init.normal_(self.dense.weight, std=config.get("initializer_range", 0.02))
        nn.init.zeros_(self.dense.bias)
        # A function, not the module: the table is the encoder's, and saved and trained as such.
        self.word_table = encoder.word_table

    def forward(self, hidden: Tensor, mask: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Transform the last layer's output [rows, length, width] for decoding.

        This includes padding, whose result is not used.
        """
        transformed: Tensor = self.norm(F.gelu(self.dense(hidden)))
        return transformed

    def decode(self, transformed: Tensor) -> Tensor:
        """Turn [..., width] into a logit per word, [..., vocabulary]."""
        return F.linear(transformed, self.word_table(), self.bias)


class MaskedWords:
    """Mean cross entropy over the chosen places, which alone are decoded."""

    def __init__(self, head: WordHead):
        self.head = head

    def __call__(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of outputs [rows, length, width] and labels as mask_words makes them.

        0 where nothing was chosen.
        """
        places, words = labels.unbind(1)
        chosen = outputs.gather(1, places.unsqueeze(-1).expand(-1, -1, outputs.shape[-1]))
        logits = self.head.decode(chosen).float()
        total = F.cross_entropy(
            logits.flatten(0, 1), words.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total / self.counts(labels).clamp(min=1)

    @staticmethod
    def counts(labels: Tensor) -> Tensor:
        """Return how many places were chosen, of which the loss is the mean."""
        return (labels[:, 1] != IGNORED).sum()


def mask_words(
    tokens: Tokens,
    generator: np.random.Generator,
    *,
    rate: float,
    mask_id: int,
    num_words: int,
    special: Collection[int],
) -> Batch:
    """Choose places, hide what stands there, and label them with it.

    Of the chosen, 80% become the mask token, 10% a random word, 10% stay. The labels are
    int64 [rows, 2, most]: places, and the words that stood there, IGNORED where a row has fewer.
    """
    ids = tokens.ids.numpy()
    open_ = tokens.mask.numpy() & ~np.isin(ids, list(special))
    chosen = open_ & (generator.random(ids.shape) < rate)
    fate = generator.random(ids.shape)
    random = generator.integers(num_words, size=ids.shape)
    seen = np.where(chosen & (fate < 0.8), mask_id, ids)
    seen = np.where(chosen & (fate >= 0.8) & (fate < 0.9), random, seen)
    most = max(1, int(chosen.sum(1).max(initial=0)))
    places = np.argsort(~chosen, axis=1, kind="stable")[:, :most]  # the chosen first, in order
    words = np.where(
        np.take_along_axis(chosen, places, 1), np.take_along_axis(ids, places, 1), IGNORED
    )
    labels = torch.from_numpy(np.stack([places, words], axis=1))
    return Batch(Tokens(torch.from_numpy(seen), tokens.types, tokens.mask), labels)


@STAGE_KINDS.register("mlm")
class MaskedLanguageModel(OnTexts):
    """Masked language model (Devlin et al. 2019) on the tasks' own text (Gururangan et al. 2020).

    Each word piece is chosen with probability `rate`, special tokens never; of those chosen 80%
    are masked, 10% become a random word, 10% stay, and the loss is the cross entropy of the words
    that stood there. Other places are chosen in every pass. The texts are all text columns of the
    stage's tasks' training rows, and of the [texts.NAME] that `texts` names, each text once and by
    itself. The head (dense, GELU, LayerNorm, the encoder's word table, a bias) starts fresh and is
    dropped afterwards. Gururangan et al. train 100 epochs at lr 1e-4 in batches of 256.
    `max_length` is the run's unless set; `from_tasks = false` leaves out the tasks' texts.
    """

    def __init__(
        self,
        *,
        rate: float = 0.15,
        max_length: int | None = None,
        texts: tuple[str, ...] = (),
        from_tasks: bool = True,
    ):
        if not 0 < rate < 1:
            raise ValueError(f"rate must be between 0 and 1, not {rate}")
        super().__init__(max_length, texts, from_tasks)
        self.rate, self.max_length = rate, max_length

    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return one, of every text once."""
        mask_id, layout = material.tokenizer.mask_id, material.collator.layout
        if mask_id is None:
            raise ValueError("the encoder's tokenizer has no mask token")
        every = every_text(material, self.from_tasks)
        if not len(every):
            raise ValueError("there is no text to train on")
        limit = self.max_length or material.collator.max_length
        corpus = make_corpus(every, material, limit)
        special = {
            mask_id,
            layout.pad_id,
            *(i for run in (*layout.single, *layout.pair) for i in run),
        }
        head = WordHead(material.encoder)
        num_words = min(len(material.tokenizer), len(head.bias))

        def make(rows: Tensor, generator: np.random.Generator) -> Batch:
            return mask_words(
                corpus.tokens(rows),
                generator,
                rate=self.rate,
                mask_id=mask_id,
                num_words=num_words,
                special=special,
            )

        return {"mlm": Objective(len(every), make, MaskedWords(head), head, draws=True)}
