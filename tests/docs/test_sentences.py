"""
A sentence of a page has at most 25 words. The pages in long_sentences.json have so many longer ones, and no more.

`python -m tests.docs.test_sentences` writes today's numbers.
"""

import json
import re
from pathlib import Path

from tests.docs.test_links import PAGES, ROOT

KEPT = Path(__file__).with_name("long_sentences.json")
NO_PROSE = re.compile(r"(?ms)^ *```.*?^ *```$|^\|.*?$|^#.*?$|<!--.*?-->")
REFERENCE = {"faults.md", "hardware.md", "metrics.md", "names.md"}
"""Tables to look things up in, which may have more than 150 lines."""
STARTS = re.compile(r"(?m)\n\s*\n|^ *(?:[-*]|\d+\.) |(?<=[.!?])\s")


def long_sentences(text):
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", NO_PROSE.sub("\n\n", text))
    return [words for words in STARTS.split(re.sub(r"`[^`]*`", "code", prose)) if len(words.split()) > 25]


def pages():
    read = {page: page.read_text() for page in PAGES if not re.search("decisions|CHANGELOG", str(page))}
    return {str(page.relative_to(ROOT)): words for page, text in read.items() if (words := long_sentences(text))}


def test_a_page_has_no_more_long_sentences_than_it_had():
    kept = json.loads(KEPT.read_text())
    longer = {page: words for page, words in pages().items() if len(words) > kept.get(page, 0)}
    assert longer == {}, "split one, a thought each; then lower the page's number in long_sentences.json"


def test_a_page_of_docs_has_at_most_150_lines_unless_it_is_reference():
    long = {page.name for page in PAGES if ROOT / "docs" in page.parents and page.read_text().count("\n") > 150}
    assert long == REFERENCE


if __name__ == "__main__":
    KEPT.write_text(json.dumps({page: len(words) for page, words in pages().items()}, indent=1) + "\n")
