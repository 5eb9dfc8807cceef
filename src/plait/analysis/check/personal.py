"""Find what looks like personal data in texts: e-mail addresses, numbers, IP addresses.

These are rules, not a model. Card and account numbers must have valid check digits. The rules miss
other personal data, above all names.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w@])"
)
_PHONE = re.compile(
    r"(?<![\w.,+/-])(?<!\d )(?:"
    r"(?:\+|00)[1-9]\d{0,2}[ .-]?(?:\(0?\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){1,4}"
    r"|(?:\+?1[ .-]?)?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[.-]\d{4}"
    r")(?![\w-]|[.,]\d)"
)
_CARD = re.compile(r"(?<![\w.,-])[2-6]\d(?:[ -]?\d){10,17}(?![\w-]|[.,]\d)")
_IBAN = re.compile(r"(?<!\w)[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?!\w)")
_IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_VERSION = re.compile(r"(?:\bv|version|release|section|chapter|§)\s*$", re.IGNORECASE)


def find_personal(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, words) for everything in a text that looks like personal data."""
    if "@" in text:
        yield from (("mail address", match[0]) for match in _MAIL.finditer(text))
    if not any(c.isdigit() for c in text):
        return
    taken: list[tuple[int, int]] = []
    for match in _IBAN.finditer(text):
        if _is_iban(match[0]):
            taken.append(match.span())
            yield "account number", match[0]
    for match in _CARD.finditer(text):
        if _is_card(match[0]) and _is_free(match, taken):
            taken.append(match.span())
            yield "card number", match[0]
    for match in _PHONE.finditer(text):
        if 8 <= sum(c.isdigit() for c in match[0]) <= 15 and _is_free(match, taken):
            yield "telephone number", match[0]
    for match in _IP.finditer(text):
        if _is_address(match[0]) and not _VERSION.search(text[: match.start()]):
            yield "IP address", match[0]


def _is_free(match: re.Match[str], taken: list[tuple[int, int]]) -> bool:
    return all(match.end() <= start or end <= match.start() for start, end in taken)


def _is_card(text: str) -> bool:
    """Check the length and the check digit (Luhn, ISO/IEC 7812)."""
    digits = [int(c) for c in text if c.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) < 2:
        return False
    doubled = [sum(divmod(2 * d, 10)) for d in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """Check the length and the check digits (ISO 13616: modulo 97)."""
    bare = text.replace(" ", "")
    if not 15 <= len(bare) <= 34:
        return False
    number = "".join(str(int(c, 36)) for c in bare[4:] + bare[:4])
    return int(number) % 97 == 1


def _is_address(text: str) -> bool:
    """Return whether a text is an IP address of a machine, unlike 0.0.0.0 and 127.0.0.1."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_loopback)
