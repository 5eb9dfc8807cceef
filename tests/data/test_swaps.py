"""Words of pairs are swapped where they stand by themselves, in the case they were written in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.swaps import GENDERED, NO_NOUN, Swapper

SWAP = Swapper()


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("he is a man", "she is a woman"),
        ("The actress and the king", "The actor and the queen"),
        ("Mr. Smith met Mrs Jones", "Mrs. Smith met Mr Jones"),
        ("MOTHER, Father; boy", "FATHER, Mother; girl"),
        ("he's his father's son", "she's her mother's daughter"),
        ("(she)she-wolf", "(he)he-wolf"),
        ("her fiancé", "his fiancée"),
        ("nobody here", "nobody here"),
        ("", ""),
    ],
)
def test_by_hand(text: str, swapped: str) -> None:
    assert SWAP(text) == swapped


@pytest.mark.parametrize(
    "text",
    [
        "the shepherd",
        "human",
        "mankind",
        "heroin",
        "mankini",
        "kingdom",
        "he_",
        "Émen",
        "heé",
        "m an",
    ],
)
def test_parts_of_words_stay(text: str) -> None:
    assert SWAP(text) == text


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("I saw him.", "I saw her."),
        ("him and her", "her and him"),
        ("Her book", "His book"),
        ("HER BOOK", "HIS BOOK"),
        ("his book", "her book"),
        ('her "best" book', 'his "best" book'),
        ("I saw her.", "I saw him."),
        ("I saw her", "I saw him"),
        ("I saw her, too", "I saw him, too"),
        ("I gave her the book", "I gave him the book"),
        ("I told her that", "I told him that"),
        ("a friend of his", "a friend of hers"),
        ("His is better", "Hers is better"),
        ("hers is better", "his is better"),
        ("he hurt himself", "she hurt herself"),
        ("it made her cry", "it made his cry"),  # wrong, and told so where the rule is
    ],
)
def test_pronouns_by_the_word_that_follows(text: str, swapped: str) -> None:
    assert SWAP(text) == swapped


PLAIN = sorted(word for pair in GENDERED for word in pair)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*PLAIN, "film", "the", "Zoë", "İ", "hers"]),
            st.sampled_from([str, str.capitalize, str.upper]),
        )
    )
)
def test_twice_is_as_before(words: list[tuple[str, object]]) -> None:
    """Of words with one counterpart, in any of the three cases."""
    text = " ".join(case(word) for word, case in words if word != "hers")  # type: ignore[operator]
    assert SWAP(SWAP(text)) == text


@given(st.text())
def test_any_text_at_all(text: str) -> None:
    assert isinstance(SWAP(text), str)
    assert SWAP(f"{text} he {text}") != f"{text} he {text}"


def test_the_list() -> None:
    assert len(GENDERED) >= 60
    words = [word for pair in GENDERED for word in pair]
    assert len(set(words)) == len(words)
    assert all(word == word.lower() for word in words)
    assert not {"her", "his", "him", "hers"} & set(words)
    # or swapping twice would take 'her' for something else the second time
    assert {SWAP(word) in NO_NOUN for word in ("he", "she")} == {True}


def test_own_pairs() -> None:
    swap = Swapper([["Diwali", "Christmas"], ["New York", "Mumbai"], ["New", "old"]])
    assert swap("Diwali in New  York") == "Christmas in Mumbai"
    assert swap("diwali, DIWALI: christmas") == "christmas, CHRISTMAS: diwali"
    assert swap("Mumbai is old; New is not") == "New York is New; old is not"
    assert swap("he and her book") == "he and her book"  # the built-in list is replaced


def test_pronouns_in_own_pairs_have_no_rule() -> None:
    assert Swapper([["her", "their"]])("her book; saw her") == "their book; saw their"


def test_signs_in_own_pairs_are_no_pattern() -> None:
    assert Swapper([["a.b", "c+"]])("a.b axb c+") == "c+ axb a.b"


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([], "pairs is empty"),
        ([["a"]], r"pairs holds \['a'\], which is not two words"),
        ([["a", " "]], "which is not two words"),
        ([["a", "b"], ["c", "A"]], "pairs has 'A' twice"),
        ([["a", "a"]], "pairs has 'a' twice"),
    ],
)
def test_pairs_that_make_no_sense(pairs: list[list[str]], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Swapper(pairs)
