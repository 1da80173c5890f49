"""A sentence of a page has at most 25 words. The pages in long_sentences.json have so many longer ones, and no more."""

import json
import re
from pathlib import Path

from tests.docs.test_links import PAGES, ROOT

KEPT = json.loads(Path(__file__).with_name("long_sentences.json").read_text())
NO_PROSE = re.compile(r"(?ms)^ *```.*?^ *```$|^\|.*?$|^#.*?$|<!--.*?-->")
STARTS = re.compile(r"(?m)\n\s*\n|^ *(?:[-*]|\d+\.) |(?<=[.!?])\s")


def long_sentences(text):
    prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", NO_PROSE.sub("\n\n", text))
    return [words for words in STARTS.split(re.sub(r"`[^`]*`", "code", prose)) if len(words.split()) > 25]


def test_a_page_has_no_more_long_sentences_than_it_had():
    read = [page for page in PAGES if "decisions" not in page.parts and page.name != "CHANGELOG.md"]
    pages = {str(page.relative_to(ROOT)): long_sentences(page.read_text()) for page in read}
    longer = {page: found for page, found in pages.items() if len(found) > KEPT.get(page, 0)}
    assert longer == {}, "split one, a thought each; then lower the page's number in long_sentences.json"
