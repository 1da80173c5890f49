from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from agent.commands import arguments


@pytest.mark.parametrize(
    ("take", "text", "value"),
    [
        (arguments.hosts, "1", 1),
        (arguments.hosts, "1000000", 1_000_000),
        (arguments.price, "0", 0.0),
        (arguments.price, "0.3", 0.3),
        (arguments.seconds, "1e9", 1e9),
        (arguments.whole, "-7", -7),
        (arguments.count, "86400", 86_400),
        (arguments.words, " gpu, host,,", ("gpu", "host")),
        (arguments.pair, "gpu-idle=2.5", ("gpu-idle", 2.5)),
        (arguments.pair, "a=0", ("a", 0.0)),
    ],
)
def test_what_fits_is_taken(take, text, value):
    assert take(text) == value


@pytest.mark.parametrize(
    ("take", "texts", "fault"),
    [
        (arguments.hosts, ["0", "-1", "1000001"], "expected a whole number from 1 to 1000000, got "),
        (arguments.hosts, ["x", "1.5", ""], "expected a whole number, got "),
        (arguments.price, ["-1", "nan", "inf", "x", ""], "expected a number of dollars, got "),
        (arguments.seconds, ["-1", "nan", "inf", "1.1e9", "x"], "expected a number of seconds, got "),
        (arguments.count, ["0", "-1", "86401", "1.5", "x", "", "\N{SUPERSCRIPT TWO}", "\N{ARABIC-INDIC DIGIT ONE}"],
         "expected a whole number from 1 to 86400, got "),
        (arguments.words, ["", ",", " , "], "expected words separated by commas, got "),
        (arguments.pair, ["", "a", "a=", "=1", "a=x", "a=-1", "a=nan", "a=inf"], "expected ALARM=NUMBER, got "),
    ],
)  # fmt: skip
def test_what_does_not_is_refused_in_our_words(take, texts, fault):
    for text in texts:
        with pytest.raises(ArgumentTypeError, match=fault):
            take(text)
