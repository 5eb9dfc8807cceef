"""The files of the page: what a browser is shown, and what it may do with it.

Nothing is loaded from elsewhere and no script stands inside HTML. Browsers that know Trusted Types
refuse besides whatever would turn a text into HTML.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    import os

    from starlette.responses import Response
    from starlette.types import Scope

PAGE = Path(__file__).parent / "page"

_COMMON = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
)
POLICY = f"{_COMMON}style-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
FRAMING = f"{_COMMON}style-src 'self' 'unsafe-inline'; frame-src blob:"
"""For the page around a report, which brings its own style; its frame runs no scripts."""

# Some machines call scripts plain text, which browsers then refuse to run.
mimetypes.add_type("text/javascript", ".js")


class Site(StaticFiles):
    """Gives out the page's files, /docs for docs.html."""

    def __init__(self) -> None:
        super().__init__(directory=PAGE, html=True)

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Find a file, or one whose ending was left out."""
        found = super().lookup_path(path)
        return found if found[1] is not None else super().lookup_path(f"{path}.html")

    def file_response(
        self, full_path: Any, stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Make a file's response, with what a browser may do."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_framing = Path(full_path).name == "report.html"
        response.headers["Content-Security-Policy"] = FRAMING if is_framing else POLICY
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cache-Control"] = "no-cache"  # asked again each time, seldom sent again
        return response
