"""An encoder's files become an Encoder, and what it puts out becomes one vector per row."""

from __future__ import annotations

import inspect
import json
import re
from abc import ABC, abstractmethod
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from plait.errors import EncoderError, first_line
from plait.model.bert import Bert, BertConfig
from plait.model.interface import Adapter, Encoded, Encoder
from plait.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from plait.model.sources import EncoderFiles
    from plait.types import Tokens

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "AutoEncoder",
    "Encoded",
    "Encoder",
    "build_encoder",
    "check_adapters",
    "check_pooling",
    "hub_weights",
    "load_encoder",
    "pool",
]

Pooling = Literal["cls-pooler", "cls", "mean"]

SEED = 0
"""Of weights that are in no file: a fresh pooler is the same in every run."""
NO_POOLER = "The files hold no pooler: its weights are random."
NO_ADAPTERS = (
    'adapters go into plait\'s own BERT alone: set encoder.architecture = "bert", '
    "or leave the tasks' adapters out"
)


class Architecture(ABC):
    """Makes encoders of one kind: of their files, or of their config.json alone.

    What it makes is an `Encoder` (plait.model.interface), whose `config` is plain JSON and enough
    to build it again.
    """

    @abstractmethod
    def load(self, files: EncoderFiles, config: dict[str, Any]) -> Encoder:
        """Read an encoder with its weights, in fp32; `config` is what `files.config` holds."""

    @abstractmethod
    def build(self, config: Mapping[str, Any]) -> Encoder:
        """Make an encoder of a config's shape, with random weights that are always the same.

        A trained run's are put in afterwards, by their names in its `state_dict`.
        """


ARCHITECTURES: Registry[Architecture] = Registry(
    "architecture", "files of an encoder -> an encoder"
)


def load_encoder(
    files: EncoderFiles,
    *,
    architecture: str = "bert",
    dropout: float | None = None,
    attention_dropout: float | None = None,
) -> Encoder:
    """Read an encoder with its weights, in fp32; dropouts replace its configuration's."""
    config = _read_config(files.config)
    encoder = _find_architecture(architecture).load(files, config)
    encoder.notes = " ".join(note for note in (files.notes, encoder.notes) if note)
    encoder.set_dropout(dropout, attention_dropout)
    return encoder


def build_encoder(config: Mapping[str, Any], architecture: str = "bert") -> Encoder:
    """Make an encoder of a config.json's shape, with random weights that are always the same."""
    return _find_architecture(architecture).build(config)


def _find_architecture(name: str) -> Architecture:
    return ARCHITECTURES.build(name, "encoder.architecture")


def _read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(config, dict):
        raise EncoderError(f"{path} is not a JSON object")
    return config


# --- one vector per row ------------------------------------------------------------------


def check_pooling(encoder: Encoder, how: Pooling) -> None:
    """Refuse a pooling that the encoder cannot give."""
    if how == "cls-pooler" and not encoder.has_pooler:
        raise EncoderError(
            'encoder.pooling = "cls-pooler" needs a pooler, which this encoder does not have; '
            'use "mean" or "cls"'
        )


def check_adapters(encoder: Encoder) -> None:
    """Refuse adapters where the encoder has no place for them."""
    if not encoder.takes_adapters:
        raise EncoderError(NO_ADAPTERS)


def pool(encoded: Encoded, mask: Tensor, how: Pooling) -> Tensor:
    """Turn an encoder's output into one vector per row, [rows, width]."""
    if how == "cls-pooler":
        assert encoded.pooled is not None, "check_pooling refuses this when the model is built"
        return encoded.pooled
    if how == "cls":
        return encoded.hidden[:, 0]
    # Sums over a long row lose too much in bf16.
    hidden = encoded.hidden.to(torch.promote_types(encoded.hidden.dtype, torch.float32))
    real = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


# --- plait's own BERT --------------------------------------------------------------------

# Our name of a module -> the Hub's; three of them where ours holds three in one.
HUB_NAMES = {
    "embeddings.word": ("embeddings.word_embeddings",),
    "embeddings.position": ("embeddings.position_embeddings",),
    "embeddings.segment": ("embeddings.token_type_embeddings",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
    "pooler.dense": ("pooler.dense",),
}


@ARCHITECTURES.register("bert")
class BertArchitecture(Architecture):
    """BERT, in plait's own code (Devlin et al. 2019): the fastest, and the one for adapters."""

    def load(self, files: EncoderFiles, config: dict[str, Any]) -> Encoder:
        """Read weights under the Hub's names."""
        return _load_bert(files, config)

    def build(self, config: Mapping[str, Any]) -> Encoder:
        """Draw weights as for pretraining."""
        bert = _make_bert(config)
        bert.init_weights(torch.Generator().manual_seed(SEED))
        return bert


def _hub_names(name: str) -> list[str]:
    """Return the Hub's name, or names, of one of our parameters."""
    module, _, kind = name.rpartition(".")
    layer = re.match(r"layers\.(\d+)\.", module)
    prefix = f"encoder.layer.{layer[1]}." if layer else ""
    module = module.removeprefix(layer[0]) if layer else module
    return [f"{prefix}{hub}.{kind}" for hub in HUB_NAMES[module]]


def hub_weights(bert: Bert) -> dict[str, Tensor]:
    """Return the weights under the Hub's names, as a model.safetensors holds them."""
    weights: dict[str, Tensor] = {}
    for name, tensor in bert.state_dict().items():
        hubs = _hub_names(name)
        weights |= dict(zip(hubs, (t.contiguous() for t in tensor.chunk(len(hubs))), strict=True))
    return weights


def _make_bert(config: Mapping[str, Any]) -> Bert:
    shape = BertConfig.from_json(config)
    with torch.random.fork_rng(devices=[]):  # a new Linear draws from torch's own generator
        return Bert(shape)


def _load_bert(files: EncoderFiles, config: Mapping[str, Any]) -> Bert:
    bert = _make_bert(config)
    found = _read_weights(files)
    if not any(name.startswith("pooler.") for name in found):
        fresh = _draw((bert.width, bert.width), bert.initializer_range)
        found["pooler.dense.weight"] = (fresh, files.config)
        found["pooler.dense.bias"] = (torch.zeros(bert.width), files.config)
        bert.notes = NO_POOLER
    state = {}
    for name, parameter in bert.state_dict().items():
        hubs = _hub_names(name)
        shape = (parameter.shape[0] // len(hubs), *parameter.shape[1:])
        state[name] = torch.cat([_take(found, hub, shape, files) for hub in hubs])
    for name, (_, path) in found.items():  # more layers than config.json says, for one
        if name.startswith(("embeddings.", "encoder.", "pooler.")):
            raise EncoderError(
                f"{path} holds {name!r}, which is not a parameter of the model in {files.config}"
            )
    bert.load_state_dict(state)
    return bert


def _read_weights(files: EncoderFiles) -> dict[str, tuple[Tensor, Path]]:
    """Read every tensor with the file it came from, under the Hub's present names."""
    found: dict[str, tuple[Tensor, Path]] = {}
    for path in files.weights:
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise EncoderError(f"{path} is not a readable safetensors file: {error}") from error
        found |= {name: (tensor, path) for name, tensor in tensors.items()}
    if any(name.startswith("bert.") for name in found):  # beside them only heads (cls.*)
        found = {n.removeprefix("bert."): t for n, t in found.items() if n.startswith("bert.")}
    # The first BERTs were converted from TensorFlow together with its names.
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
    for past, present in old.items():
        found = {name.replace(past, present): tensor for name, tensor in found.items()}
    found.pop("embeddings.position_ids", None)
    return found


def _take(
    found: dict[str, tuple[Tensor, Path]], name: str, shape: tuple[int, ...], files: EncoderFiles
) -> Tensor:
    """Remove one tensor from those found and return it in fp32, after checking it."""
    if name not in found:
        where = ", ".join(str(path) for path in files.weights)
        raise EncoderError(f"{where}: there is no tensor {name!r}, which BERT needs")
    tensor, path = found.pop(name)
    if tuple(tensor.shape) != shape:
        raise EncoderError(
            f"{path}: tensor {name!r} has shape {list(tensor.shape)}, "
            f"but {files.config} makes it {list(shape)}"
        )
    if tensor.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise EncoderError(f"{path}: tensor {name!r} is {tensor.dtype}, not fp32, fp16 or bf16")
    return tensor.to(torch.float32)


def _draw(shape: tuple[int, ...], deviation: float) -> Tensor:
    generator = torch.Generator().manual_seed(SEED)
    return torch.empty(shape).normal_(0.0, deviation, generator=generator)


# --- any other architecture --------------------------------------------------------------


@ARCHITECTURES.register("auto")
class AutoArchitecture(Architecture):
    """Whatever transformers' AutoModel makes of the files (`plait[auto]`), if an encoder alone."""

    def load(self, files: EncoderFiles, config: dict[str, Any]) -> Encoder:
        """Let transformers read the folder."""
        return _load_auto(files, config)

    def build(self, config: Mapping[str, Any]) -> Encoder:
        """Let transformers draw the weights."""
        return AutoEncoder(_auto_from_config(config), config)


class AutoEncoder(Encoder):
    """Whatever transformers' AutoModel makes of a folder, as an Encoder."""

    def __init__(self, model: Any, config: Mapping[str, Any]):
        super().__init__()
        self.model, self.config = model, dict(config)
        settings = model.config
        self.width, self.num_layers = settings.hidden_size, settings.num_hidden_layers
        self.num_heads = getattr(settings, "num_attention_heads", 1)
        self.pad_id = settings.pad_token_id or 0
        self.max_positions = _count_positions(model)
        self.has_pooler = getattr(model, "pooler", None) is not None
        # RoBERTa takes segment ids, yet has a single segment.
        self.takes_types = (
            "token_type_ids" in inspect.signature(model.forward).parameters
            and getattr(settings, "type_vocab_size", 0) > 1
        )

    def word_table(self) -> Tensor:
        """Return the word embeddings themselves, [vocabulary, width]."""
        return self.model.get_input_embeddings().weight  # type: ignore[no-any-return]

    def word_embeddings(self, ids: Tensor) -> Tensor:
        """Look up [rows, length] ids in the word table alone."""
        return self.model.get_input_embeddings()(ids)  # type: ignore[no-any-return]

    def forward(
        self,
        tokens: Tokens,
        embeddings: Tensor | None = None,
        adapter: Adapter | None = None,
        shift: Tensor | None = None,
    ) -> Encoded:
        """Encode a batch; `embeddings` stand in for the word embeddings of its ids.

        `shift` is added to what the model's embedding layer makes of them.
        """
        if adapter is not None:
            raise EncoderError(NO_ADAPTERS)
        given = {"input_ids": tokens.ids} if embeddings is None else {"inputs_embeds": embeddings}
        if self.takes_types:
            given["token_type_ids"] = tokens.types
        with nullcontext() if shift is None else self._shifted(shift):
            output = self.model(
                **given,
                attention_mask=tokens.mask.long(),
                output_hidden_states=True,
                return_dict=True,
            )
        pooled = output.pooler_output if self.has_pooler else None
        return Encoded(output.last_hidden_state, tuple(output.hidden_states), pooled)

    @contextmanager
    def _shifted(self, shift: Tensor) -> Iterator[None]:
        """Add to the output of the embedding layer in every pass inside."""
        layer = getattr(self.model, "embeddings", None)
        if not isinstance(layer, nn.Module):
            kind = type(self.model).__name__
            raise EncoderError(
                f"{kind} has no embedding layer whose output could be changed, as smart-unit "
                "does; use smart"
            )
        hook = layer.register_forward_hook(lambda _module, _given, made: made + shift)
        try:
            yield
        finally:
            hook.remove()

    def layer_of(self, name: str) -> int:
        """Say where a parameter sits; what all layers share is above them, as the pooler is."""
        if numbered := re.search(r"\.(?:layers?|h|blocks?)\.(\d+)\.", name):
            return int(numbered[1]) + 1
        return 0 if "embed" in name else self.num_layers + 1


def _count_positions(model: Any) -> int:
    count = getattr(model.config, "max_position_embeddings", None) or 512
    for module in model.modules():
        table = getattr(module, "position_embeddings", None)
        # RoBERTa counts its positions from pad_id + 1 on.
        if isinstance(table, nn.Embedding) and table.padding_idx is not None:
            count -= table.padding_idx + 1
    return int(count)


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise EncoderError(
            "encoder.architecture = \"auto\" needs transformers: pip install 'plait[auto]'"
        ) from error
    return transformers


def _auto_from_config(config: Mapping[str, Any]) -> Any:
    transformers = _import_transformers()
    settings = dict(config)
    kind = settings.pop("model_type", None)
    # transformers draws from torch's generator; give it back as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        try:
            made = transformers.AutoConfig.for_model(kind, **settings)
            model = transformers.AutoModel.from_config(made, trust_remote_code=False)
        except (ValueError, KeyError, ImportError) as error:
            raise EncoderError(
                f"transformers makes no model of model_type = {kind!r}: {first_line(error)}"
            ) from error
    _refuse_decoder(model)
    return model.float()


def _load_auto(files: EncoderFiles, config: Mapping[str, Any]) -> AutoEncoder:
    transformers = _import_transformers()
    try:
        with torch.random.fork_rng(devices=[]), _quiet(transformers.utils.logging):
            model, report = transformers.AutoModel.from_pretrained(
                str(files.folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (ValueError, KeyError, OSError, RuntimeError, ImportError, SafetensorError) as error:
        raise EncoderError(
            f"transformers cannot load {files.folder}: {first_line(error)}"
        ) from error
    _refuse_decoder(model)
    encoder = AutoEncoder(model.float(), config)
    missing = sorted(report["missing_keys"])
    for name in missing:
        if not name.startswith("pooler."):
            raise EncoderError(
                f"{files.folder}: there is no tensor {name!r}, which its model needs"
            )
    if missing:
        deviation = getattr(model.config, "initializer_range", 0.02)
        for parameter in model.pooler.parameters():
            is_bias = parameter.ndim == 1
            parameter.data.copy_(_draw(parameter.shape, 0.0 if is_bias else deviation))
        encoder.notes = NO_POOLER
    return encoder


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """Keep transformers' progress bar and its report on heads left out off the terminal."""
    level, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()


def _refuse_decoder(model: Any) -> None:
    if model.config.is_encoder_decoder:
        raise EncoderError(
            f"a {model.config.model_type} model has an encoder and a decoder; "
            "plait needs an encoder-only model"
        )
