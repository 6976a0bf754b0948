"""Pages of the documentation, as messages name them: whoever reads one may have no folder docs."""

from __future__ import annotations


def pages(*titles: str) -> str:
    """Some pages by their titles."""
    named = " and ".join(f'"{title}"' for title in titles)
    return f"the page{'s' if len(titles) > 1 else ''} {named} of terrine's documentation"
