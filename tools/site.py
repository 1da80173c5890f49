"""
Makes a site of docs/ with mkdocs-material: `make site`, or `make site ARGS=serve` while a page is written.

The pages stay as they are in the repository, at the same relative places, with README.md in front; the order of
their titles is that of the table in docs/README.md. A link to a folder leads to its README.md, one to another file to a
copy of it. A link or an anchor that leads nowhere ends the build. build/site has a folder for each version, the list that the
menu of versions reads, and a first page that leads to the newest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
SITE = BUILD / "site"
INDEX = "docs/README.md"
STYLE = """@media (max-width: 45em) {
  .md-typeset p:has(> img[src$=".svg"]) { overflow-x: auto }
  .md-typeset img[src$=".svg"] { max-width: none; width: 42rem }
}
"""
"""A picture of a terminal can be read on a telephone: it is scrolled, not made small."""
LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
FENCE = re.compile(r"(?ms)^```.*?^```$")
HEADING = re.compile(r"(?m)^# (.+)$")
THEME = {
    "name": "material",
    "font": False,  # no request to a server of fonts
    "features": [
        "navigation.tabs", "navigation.indexes", "navigation.top", "navigation.footer", "search.suggest",
        "search.highlight", "content.code.copy", "toc.follow",
    ],
    "palette": [  # the first follows the system, also when that changes
        {"media": "(prefers-color-scheme)", "primary": "teal",
         "toggle": {"icon": "material/brightness-auto", "name": "light"}},
        {"media": "(prefers-color-scheme: light)", "scheme": "default", "primary": "teal",
         "toggle": {"icon": "material/weather-night", "name": "dark"}},
        {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "primary": "teal",
         "toggle": {"icon": "material/weather-sunny", "name": "as the system"}},
    ],
}  # fmt: skip


def main() -> None:
    """Build the site, or serve it on loopback until Ctrl-C."""
    version = re.search(r'(?m)^__version__ = "(.+)"', (ROOT / "agent/chipwatch/base/version.py").read_text())[1]
    shutil.rmtree(PAGES, ignore_errors=True)
    pages = copy_pages()
    (PAGES / "wide.css").write_text(STYLE)
    configuration = BUILD / "mkdocs.yml"
    configuration.write_text(json.dumps(settings(navigation(pages)), indent=1))  # JSON is YAML
    serve = sys.argv[1:] == ["serve"]
    words = ("serve", "--dev-addr", "127.0.0.1:8000") if serve else ("build", "--strict", "--site-dir", SITE / version)
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", *map(str, words), "--quiet", "--config-file", str(configuration)]
    if code := subprocess.run(command, check=False, env=env).returncode:
        sys.exit(code)
    if not serve:
        list_versions()
        print(f"{SITE / version}: {sum(1 for _ in (SITE / version).rglob('*.html'))} pages")


def copy_pages() -> dict[str, str]:
    """Copy README.md and each file that a link leads to; return the titles of the pages by path."""
    titles: dict[str, str] = {}
    waiting = ["README.md", INDEX]
    copied: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in copied:
            continue
        copied.add(path)
        (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            shutil.copy(ROOT / path, PAGES / path)
            continue
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).exists() else _listing(Path(path).parent)
        titles[path] = HEADING.search(text)[1].replace("`", "")
        text, files = lead_links(path, text)
        (PAGES / path).write_text(text, encoding="utf-8")
        waiting += files
    return titles


def lead_links(path: str, text: str) -> tuple[str, list[str]]:
    """Return a page with links to folders as links to their README.md, and the files that its links lead to."""
    folder, files = (ROOT / path).parent, list[str]()
    code = [match.span() for match in FENCE.finditer(text)]

    def lead(link: re.Match[str]) -> str:
        if ":" in link[2] or any(begin <= link.start() < end for begin, end in code):
            return link[0]
        target = (folder / link[2]).resolve()
        target = target / "README.md" if target.is_dir() else target
        if target.parent.exists():
            files.append(str(target.relative_to(ROOT)))
        return f"{link[1]}{os.path.relpath(target, folder)}{link[3]}"

    return LINK.sub(lead, text), files


def _listing(folder: Path) -> str:
    """Return a page for a folder that has none: its files, pages by their titles."""
    lines = [f"# {folder.name.capitalize()}", ""]
    for path in sorted((ROOT / folder).rglob("*")):
        if path.is_file():
            name = path.relative_to(ROOT / folder)
            title = HEADING.search(path.read_text(encoding="utf-8"))[1] if path.suffix == ".md" else name
            lines.append(f"- [{title}]({name})")
    return "\n".join(lines) + "\n"


def navigation(titles: dict[str, str]) -> list[dict[str, object]]:
    """Return the sections of docs/README.md, each page where it is linked first; pages below a linked README.md follow it."""
    first: list[dict[str, str]] = [{"Chipwatch": "README.md"}, {"Index": INDEX}]
    sections: list[tuple[str, list[dict[str, str]]]] = [("Chipwatch", first)]
    used = {"README.md", INDEX}
    text, _ = lead_links(INDEX, (ROOT / INDEX).read_text(encoding="utf-8"))
    for line in text.splitlines():
        if section := re.match(r"\| \*\*(.+)\*\* \|", line):
            sections.append((section[1].capitalize(), []))
        for link in LINK.finditer(line):
            path = os.path.normpath(f"docs/{link[2]}")
            if path in titles and path not in used:
                used.add(path)
                sections[-1][1].append({titles[path]: path})
    pages = [{name: [_with_children(entry, titles, used) for entry in entries]} for name, entries in sections]
    others = [{titles[path]: path} for path in sorted(titles) if path not in used]
    return [*pages, *([{"More": others}] if others else [])]


def _with_children(entry: dict[str, str], titles: dict[str, str], used: set[str]) -> dict[str, object]:
    """Return an entry of the navigation; that of a README.md holds the unused pages of its folder, which become used."""
    ((title, path),) = entry.items()
    folder = f"{Path(path).parent}/"
    below = [each for each in sorted(titles) if each.startswith(folder) and each not in used]
    if not path.endswith("/README.md") or not below or path == INDEX:
        return {**entry}
    used.update(below)
    return {title: [path, *({titles[each]: each} for each in below)]}


def settings(pages: list[dict[str, object]]) -> dict[str, object]:
    """Return mkdocs' configuration."""
    return {
        "site_name": "chipwatch", "docs_dir": str(PAGES), "nav": pages, "theme": THEME, "use_directory_urls": False,
        "plugins": ["material/search"], "extra": {"version": {"provider": "mike"}, "generator": False},
        "copyright": "chipwatch, Apache-2.0", "extra_css": ["wide.css"],
        "markdown_extensions": [
            "admonition", "attr_list", "pymdownx.highlight", "pymdownx.superfences", "tables", {"toc": {"permalink": True}},
        ],
        "validation": {"links": {"anchors": "warn", "unrecognized_links": "warn"}, "nav": {"omitted_files": "ignore"}},
    }  # fmt: skip


def list_versions() -> None:
    """Write what the menu of versions reads, newest first, and a first page that leads to the newest."""
    found = [path.name for path in SITE.iterdir() if (path / "index.html").exists()]
    newest = sorted(found, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
    entries = [{"version": name, "title": name, "aliases": ["latest"] if name == newest[0] else []} for name in newest]
    (SITE / "versions.json").write_text(json.dumps(entries))
    (SITE / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={newest[0]}/">\n')


if __name__ == "__main__":
    main()
