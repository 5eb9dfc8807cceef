"""Names of columns become words, and words tell what columns are for."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TEXT_WORDS = _words(
    "text texts sentence sent question review comment content body message tweet post title "
    "headline premise hypothesis query passage document doc utterance phrase description "
    "abstract summary paragraph article email mail subject context claim statement response "
    "reply input prompt snippet caption lyrics story anchor positive negative"
)
FIRM_LABEL_WORDS = _words(
    "label labels class category target gold y truth "
    "klasse kategorie etikett classe catégorie étiquette clase categoría etiqueta categoria "
    "etichetta categorie kategoria kategori etiket метка класс категория мітка категорія "
    "标签 类别 標籤 類別 ラベル カテゴリ カテゴリー 라벨 레이블 분류"
)
"""Words that hardly name anything but a label."""
LABEL_WORDS = FIRM_LABEL_WORDS | _words(
    "sentiment topic intent emotion mood rating ratings star stars score similarity relatedness "
    "duplicate paraphrase polarity toxic toxicity spam stance genre entailment tag tags grade "
    "relevance annotation judgment judgement verdict quality same is has type subjectivity "
    "acceptable acceptability priority severity urgency"
)
SCORE_WORDS = _words(
    "score scores similarity relatedness relevance distance strength intensity valence arousal"
)
"""Words for what is measured rather than sorted, even where it is written in whole numbers."""
ID_WORDS = _words("id ids idx uid uuid guid key pairid qid docid rowid")
META_WORDS = _words(
    "source split set subset partition lang language locale date time timestamp year url link "
    "user author username annotator worker votes count length len file filename version "
    "confidence index row number fold domain "
    "quelle sprache datum zeit jahr autor auteur langue année fuente idioma fecha año fonte "
    "lingua língua ano autore bron taal jaar дата автор источник язык год"
)
"""Words for what goes along with a row and is seldom what a task asks for."""
SPLIT_COLUMN_WORDS = _words("split set subset partition fold")

COLUMN_WORDS = TEXT_WORDS | LABEL_WORDS | ID_WORDS | META_WORDS

PAIRS = (
    ("premise", "hypothesis"),
    ("query", "passage"),
    ("query", "document"),
    ("question", "answer"),
    ("question", "passage"),
    ("question", "sentence"),
    ("question", "context"),
    ("context", "question"),
    ("context", "response"),
    ("prompt", "response"),
    ("claim", "evidence"),
    ("first", "second"),
    ("left", "right"),
    ("anchor", "positive"),
    *((head, rest) for head in ("title", "subject", "headline", "summary")
      for rest in ("body", "text", "content", "description", "review", "article", "message")),
)  # fmt: skip
"""Names of two columns that are read together."""


def words_of(name: str) -> frozenset[str]:
    """Return the words of a column's name in small letters, numbers at their end left off."""
    # An accent may be a sign of its own, as in names that a Mac wrote.
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFC", name))
    return frozenset(
        bare
        for word in re.split(r"[\W_]+", apart)  # letters of any alphabet
        if (bare := word.rstrip("0123456789").lower())
    )


def stem_of(name: str) -> str | None:
    """Return a name without the mark that tells siblings apart: sentence1, text_b, question two."""
    marks = r"\d|(?<=[-_ .])(?:[abAB]|[Oo]ne|[Tt]wo)|(?<=[a-z])(?:[AB]|One|Two)"
    match = re.fullmatch(rf"(.*?)[-_ .]?({marks})", name)
    if match is None:
        return "" if name.lower() in ("a", "b") else None
    return match[1].lower()


def is_number(text: str) -> bool:
    """Say whether a value is written as a number."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def find_decimal_comma(counts: Mapping[str, int]) -> str | None:
    """Return a number written with a comma, as half of Europe writes 3.7, where most are.

    One in twenty may be another word, such as one for none; three numbers in a row are labels.
    """
    numbers = [value for value in counts if re.fullmatch(r"[-+]?\d+(,\d+)?", value)]
    if any(re.fullmatch(r"\d+(,\d+){2,}", value) for value in counts):
        return None
    total, with_comma = sum(counts.values()), [value for value in numbers if "," in value]
    if sum(counts[value] for value in numbers) < 0.95 * total:
        return None
    return with_comma[0] if sum(counts[value] for value in with_comma) > 0.5 * total else None
