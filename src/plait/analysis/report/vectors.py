"""A drawn SVG becomes a part of a page: its colours, an alt text, names of its own."""

from __future__ import annotations

import re
from html import escape

from plait.analysis.report.style import with_variables


def embed(svg: bytes, name: str, alt: str) -> str:
    """Return what stands in the page: `name` is the prefix of what the picture names inside."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    # The style sheet in it would be the whole page's, which has the same rule for pictures.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.S)
    referred = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))

    def rename(found: re.Match[str]) -> str:
        return f' id="{name}-{found[1]}"' if found[1] in referred else ""

    def tidy_tag(found: re.Match[str]) -> str:  # what stands between tags is left as it is
        inside = re.sub(r' id="([^"]+)"', rename, found[0])
        inside = inside.replace("xlink:href", "href")
        return with_variables(re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", inside))

    text = re.sub(r"<[^>]+>", tidy_tag, text)
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None
    head = (
        f'<svg viewBox="0 0 {size[1]} {size[2]}" role="img" aria-label="{escape(alt)}" '
        f'style="--width: {float(size[1]):.0f}">'
    )
    return re.sub(r">\s+<", ">\n<", re.sub(r"^<svg[^>]*>", lambda _: head, text)).strip()
