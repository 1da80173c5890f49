import re
from argparse import ArgumentTypeError

import pytest

from chipwatch.commands import cli_options


@pytest.mark.parametrize(
    ("take", "text", "value"),
    [
        (cli_options.whole(9), "1", 1),
        (cli_options.whole(1_000_000), "1000000", 1_000_000),
        (cli_options.price, "0.3", 0.3),
        (cli_options.seconds, "1e9", 1e9),
        (cli_options.seconds, "500ms", 0.5),
        (cli_options.seconds, "7d", 604800.0),
        (cli_options.words, " gpu, host,,", ("gpu", "host")),
        (cli_options.pair, "gpu-idle=2.5", ("gpu-idle", 2.5)),
        (cli_options.pair, "a=0", ("a", 0.0)),
    ],
)
def test_what_fits_is_taken(take, text, value):
    assert take(text) == value


@pytest.mark.parametrize(
    ("take", "texts", "fault"),
    [
        (cli_options.whole(86_400), ["0", "-1", "86401", "1.5", "x", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}"],
         "a whole number from 1 to 86400"),
        (cli_options.price, ["-1", "nan", "inf", "x"], "a number of dollars"),
        (cli_options.seconds, ["-1", "nan", "inf", "1.1e9", "x", "5w", "s", "5 5s"], "a time such as 5, 500ms, 1m or 7d"),
        (cli_options.words, [",", " , "], "words separated by commas"),
        (cli_options.pair, ["a", "a=", "=1", "a=x", "a=-1", "a=nan", "a=inf"], "ALARM=NUMBER"),
    ],
)  # fmt: skip
def test_what_does_not_is_refused_with_the_text_and_what_is_expected(take, texts, fault):
    for text in texts:
        with pytest.raises(ArgumentTypeError, match=f"^{re.escape(f'{text}: expected {fault}')}$"):
            take(text)


def test_an_empty_text_is_shown_in_quotes():
    with pytest.raises(ArgumentTypeError, match=r"^'': expected a number of dollars$"):
        cli_options.price("")
