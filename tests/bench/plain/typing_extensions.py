"""Stands for a package that a plain installation lacks: msgspec would load it, which takes 0.4 MB."""

raise ImportError("as in a plain installation")
