"""The screen for personal data speaks where it should and is silent elsewhere."""

from __future__ import annotations

import pytest

from plait.analysis.check.personal import find_personal


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("write to jane.doe+x@mail.example.org.", "mail address", "jane.doe+x@mail.example.org"),
        ("call +49 89 1234567 now", "telephone number", "+49 89 1234567"),
        ("call (555) 123-4567.", "telephone number", "(555) 123-4567"),
        ("555-123-4567", "telephone number", "555-123-4567"),
        # published test numbers, with right check digits
        ("card 4111 1111 1111 1111 please", "card number", "4111 1111 1111 1111"),
        ("5500-0000-0000-0004", "card number", "5500-0000-0000-0004"),
        ("IBAN DE89 3704 0044 0532 0130 00", "account number", "DE89 3704 0044 0532 0130 00"),
        ("GB82WEST12345698765432 it is", "account number", "GB82WEST12345698765432"),
        ("from 203.0.113.7 again", "IP address", "203.0.113.7"),
    ],
)
def test_found(text, kind, words):
    assert list(find_personal(text)) == [(kind, words)]


@pytest.mark.parametrize(
    "text",
    [
        "see you @ 5",
        "@someone said 1,000,000 people came",
        "the 2011-2012 season, 3-1 and 10-12-2004",
        "ISBN 978-3-16-148410-0",
        "card 4111 1111 1111 1112",  # wrong check digit
        "DE88 3704 0044 0532 0130 00",  # wrong check digits
        "version 1.2.3.4 of it, and v10.0.0.1",
        "999.1.1.1 is none, 127.0.0.1 everybody has",
        "pi is 3.14159265358979, e 2.71828182845904",
        "0000 0000 0000 0000",
        "population 4111111111111111.5",
    ],
)
def test_not_found(text):
    assert list(find_personal(text)) == []
