import pytest

from chipwatch.net.address import is_loopback


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_an_address_that_only_this_machine_reaches_is_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["127.0.0.1.example.org", "127.example.org", "localhost.example.org", "10.0.0.1", "::", ""]
)
def test_a_name_that_begins_like_a_loopback_address_is_not_loopback(host):
    assert not is_loopback(host)
