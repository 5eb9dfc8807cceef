"""The page's parts, a file each: what was gathered becomes markup, or nothing to show."""
