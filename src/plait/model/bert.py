"""BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805): tokens become contextual vectors.

Read it from the bottom: Bert adds up three embeddings and sends them through a stack of
equal layers; a Layer lets the tokens look at one another (SelfAttention), then treats each
by itself (two Linears around a GELU). Every half adds its input back and normalises the sum.
Where a task brings an adapter, it may change three values on the way through a Layer.
Packed, [tokens, width], a Layer does the same without padding and in fewer kernels.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from plait.errors import EncoderError
from plait.model.dense import Dense
from plait.model.interface import Adapter, Encoded, Encoder, LayerAdapter
from plait.model.kernels import add_norm, add_norm_plainly, look_up, usable
from plait.model.packing import Packing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.types import Tokens

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


WORTH_PACKING = 0.9
"""Share of real tokens above which padding does not cost enough to be left out."""


@dataclass(frozen=True, slots=True)
class BertConfig:
    """The shape of a BERT, under the names of the Hub's config.json."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int = 0

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> BertConfig:
        """Read a config.json, refusing what this BERT cannot do."""
        _refuse_other_models(table)
        names = [field.name for field in fields(cls)]
        known = {name: table[name] for name in names if table.get(name) is not None}
        try:
            config = TypeAdapter(cls).validate_python(known)
        except ValidationError as error:
            first = error.errors()[0]
            raise EncoderError(
                f"the encoder's config.json: {first['loc'][-1]}: {first['msg']}"
            ) from (error)
        if min(config.hidden_size, config.num_hidden_layers, config.num_attention_heads) < 1:
            raise EncoderError("the encoder's config.json has a size below 1")
        if config.hidden_size % config.num_attention_heads:
            raise EncoderError(
                f"the encoder's config.json has hidden_size {config.hidden_size}, which "
                f"is not divisible by {config.num_attention_heads} attention heads"
            )
        return config


def _refuse_other_models(table: Mapping[str, Any]) -> None:
    allowed: dict[str, tuple[object, ...]] = {
        "model_type": ("bert", None),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, None),
        "add_cross_attention": (False, None),
        "hidden_act": (*ACTIVATIONS, None),
    }
    for key, values in allowed.items():
        if table.get(key) not in values:
            raise EncoderError(
                f"plait's BERT does not support {key} = {table[key]!r}; "
                'set encoder.architecture = "auto" to use transformers'
            )


class Embeddings(nn.Module):
    """Word + segment + position embeddings, normalised."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.segment = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, words: Tensor, types: Tensor, places: Tensor | None = None) -> Tensor:
        """Turn word embeddings [rows, length, width] into the first layer's input.

        Packed ones, [tokens, width], come with each token's place in its row.
        """
        if places is None:
            length, longest = words.shape[1], self.position.num_embeddings
            if length > longest:
                raise EncoderError(
                    f"an input of {length} tokens is longer than the encoder's {longest}"
                )
            positions = self.position.weight[:length]
        else:
            positions = look_up(self.position.weight, places)
        total = words + look_up(self.segment.weight, types) + positions
        return self.dropout(self.norm(total))  # type: ignore[no-any-return]


class SelfAttention(nn.Module):
    """Every token takes a weighted mean of all real tokens' values, once per head."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        # Query, key and value in one product: three small ones cost more to launch.
        self.qkv = Dense(config.hidden_size, 3 * config.hidden_size)
        self.out = Dense(config.hidden_size, config.hidden_size)
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, hidden: Tensor, mask: Tensor, adapter: LayerAdapter | None = None) -> Tensor:
        """Mix [rows, length, width] among the tokens where mask [rows, 1, 1, length] is True."""
        qkv: Tensor = self.qkv(hidden)
        if adapter is not None:
            qkv = adapter.attention(qkv, hidden)
        # [rows, length, 3 * width] -> three of [rows, heads, length, width / heads]
        query, key, value = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p)
        mixed = mixed.transpose(1, 2).flatten(2)
        out: Tensor = self.out(mixed)
        return out if adapter is None else adapter.output(out, mixed)

    def mix_packed(self, hidden: Tensor, packing: Packing, seed: Tensor | None) -> Tensor:
        """Mix packed [tokens, width] among those of the same row; `out` is left to the caller."""
        p = self.dropout if self.training else 0.0
        return packing.attend(self.qkv(hidden), self.num_heads, p, seed)


class Layer(nn.Module):
    """Attention among the tokens, then a feed-forward net on each."""

    def __init__(self, config: BertConfig):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.up = Dense(width, inner)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.down = Dense(inner, width)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden: Tensor, mask: Tensor, adapter: LayerAdapter | None = None) -> Tensor:
        """Turn [rows, length, width] into the same shape."""
        mixed = self.attention(hidden, mask, adapter)
        middle = self.attention_norm(hidden + self.dropout(mixed))
        inner = self.activation(self.up(middle))
        total = middle + self.dropout(self.down(inner))
        if adapter is not None:
            total = adapter.after(total, hidden, mask)
        return self.output_norm(total)  # type: ignore[no-any-return]

    def forward_packed(
        self, full: Tensor, half: Tensor, packing: Packing, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Turn packed [tokens, width], in full and in computing precision, into the same.

        The same layer in fewer kernels. `seeds` are three numbers, for its dropout in attention
        and the two after it.
        """
        inside, first, second = (None, None, None) if seeds is None else seeds.unbind()
        mixed = self.attention.mix_packed(half, packing, inside)
        full, half = self._add_norm(full, mixed, self.attention.out, self.attention_norm, first)
        inner = self.activation(self.up(half))
        return self._add_norm(full, inner, self.down, self.output_norm, second)

    def _add_norm(
        self, full: Tensor, vectors: Tensor, dense: Dense, norm: nn.LayerNorm, seed: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        branch, p = dense(vectors, biased=False), self.dropout.p
        if full.is_cuda and usable():
            return add_norm(full, branch, dense.bias, norm, p, seed if p > 0 else None)
        return add_norm_plainly(full, branch, dense.bias, norm, p, self.training)


class Pooler(nn.Module):
    """One vector per row out of its first token, [CLS]."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor) -> Tensor:
        """Turn [rows, length, width] into [rows, width]."""
        return torch.tanh(self.dense(hidden[:, 0]))


class Bert(Encoder):
    """BERT, with the pooler its pretraining used."""

    has_pooler = True
    takes_adapters = True
    leaves_padding_out = True
    """Whether batches whose tokens are counted are packed."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.config = {"model_type": "bert", **asdict(config)}
        self.width, self.num_layers = config.hidden_size, config.num_hidden_layers
        self.num_heads = config.num_attention_heads
        self.max_positions, self.pad_id = config.max_position_embeddings, config.pad_token_id
        self.initializer_range = config.initializer_range
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = Pooler(config)

    def word_table(self) -> Tensor:
        """Return the word embeddings themselves, [vocabulary, width]."""
        return self.embeddings.word.weight

    def word_embeddings(self, ids: Tensor) -> Tensor:
        """Look up [rows, length] ids in the word table alone: [rows, length, width]."""
        return look_up(self.embeddings.word.weight, ids)

    def forward(
        self,
        tokens: Tokens,
        embeddings: Tensor | None = None,
        adapter: Adapter | None = None,
        shift: Tensor | None = None,
    ) -> Encoded:
        """Encode a batch; `embeddings` stand in for the word embeddings of its ids.

        `shift` is added to what the first layer is given.
        """
        room = None if adapter is not None else self._room(tokens)
        if room is not None:
            return self._encode_packed(tokens, room, embeddings, shift)
        words = self.word_embeddings(tokens.ids) if embeddings is None else embeddings
        # The mask is never looked at from here: a CUDA graph allows no question to the device.
        mask = tokens.mask[:, None, None, :]
        first = self.embeddings(words, tokens.types)
        outputs = [first if shift is None else first + shift]
        for i, layer in enumerate(self.layers):
            here = None if adapter is None else adapter.at(i)
            outputs.append(layer(outputs[-1], mask, here))
        last = outputs[-1] if adapter is None else adapter.finish(outputs[-1], mask)
        return Encoded(last, tuple(outputs), self.pooler(last))

    def _room(self, tokens: Tokens) -> int | None:
        """Say how many tokens to make room for when the padding is left out; None to keep it."""
        total, places = tokens.total, tokens.mask.numel()
        if not self.leaves_padding_out or total is None or total > WORTH_PACKING * places:
            return None
        return total

    def _encode_packed(
        self, tokens: Tokens, room: int, embeddings: Tensor | None, shift: Tensor | None
    ) -> Encoded:
        """Encode a batch without its padding."""
        packing = Packing.of(tokens.mask, room)
        if embeddings is None:
            words = self.word_embeddings(packing.pack(tokens.ids))
        else:
            words = packing.pack(embeddings)
        places = packing.source % tokens.ids.shape[1]
        full = self.embeddings(words, packing.pack(tokens.types), places)
        if shift is not None:
            full = full + packing.pack(shift)
        half = full.to(_precision(full))
        seeds = None
        if self.training and full.is_cuda:
            seeds = torch.randint(2**31, (len(self.layers), 3), device=full.device)
        for i, layer in enumerate(self.layers):
            own = None if seeds is None else seeds[i]
            full, half = cast("Layer", layer).forward_packed(full, half, packing, own)
        padded = packing.unpack(full)
        return Encoded(padded, (), self.pooler(padded))

    def _set_attention_dropout(self, p: float) -> None:
        for layer in self.layers:
            cast("Layer", layer).attention.dropout = p

    def layer_of(self, name: str) -> int:
        """Say where a parameter sits: 0 embeddings, 1..num_layers, num_layers + 1 the pooler."""
        part, _, rest = name.partition(".")
        if part == "layers":
            return int(rest.partition(".")[0]) + 1
        return 0 if part == "embeddings" else self.num_layers + 1

    @torch.no_grad()
    def init_weights(self, generator: torch.Generator) -> None:
        """Draw all weights as for pretraining: normal, biases 0, LayerNorms the identity."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                module.weight.normal_(0.0, self.initializer_range, generator=generator)
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()
            if isinstance(module, nn.Linear):
                module.bias.zero_()


def _precision(like: Tensor) -> torch.dtype:
    """Return the type that products are computed in."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype
