"""Data files become checked, tokenised datasets, and those become batches."""

from plait.data.augmentations import AUGMENTATIONS, Augmentation, Made, SetAugmentation
from plait.data.batches import collate, text_lengths, uncut_lengths
from plait.data.buckets import Buckets
from plait.data.closure import Closure
from plait.data.collator import ONE_TEXT, Collator, LaidOut, Rows
from plait.data.files import open_source
from plait.data.fingerprints import shared_examples
from plait.data.folders import cache_root, find_files, find_root, sample_root, would_find
from plait.data.groups import find_implied
from plait.data.heldout import HeldOut, find_held_out
from plait.data.parcels import Parcel
from plait.data.records import RecordFile, Records, text_schema
from plait.data.rows import FileReport
from plait.data.source import Columns
from plait.data.split import Place, SplitName, build_augmentation
from plait.data.store import Dataset, Ragged, load_split, load_texts
from plait.data.swaps import Swapper
from plait.data.tokens import Layout, Tokenizer

__all__ = [
    "AUGMENTATIONS",
    "ONE_TEXT",
    "Augmentation",
    "Buckets",
    "Closure",
    "Collator",
    "Columns",
    "Dataset",
    "FileReport",
    "HeldOut",
    "LaidOut",
    "Layout",
    "Made",
    "Parcel",
    "Place",
    "Ragged",
    "RecordFile",
    "Records",
    "Rows",
    "SetAugmentation",
    "SplitName",
    "Swapper",
    "Tokenizer",
    "build_augmentation",
    "cache_root",
    "collate",
    "find_files",
    "find_held_out",
    "find_implied",
    "find_root",
    "load_split",
    "load_texts",
    "open_source",
    "sample_root",
    "shared_examples",
    "text_lengths",
    "text_schema",
    "uncut_lengths",
    "would_find",
]
