"""A URL has one spelling: what is read in two ways is refused."""

from __future__ import annotations

import pytest

from ace_ray.models.urls import http_url

# With two versions of IDNA, with another dot, in other notations of an address, with a user name.
LOOKALIKES = [
    *("api.busineß.com", "ａｐｉ.business.com", "api。business.com", "api.business.com\u00ad"),
    *("api%2ebusiness.com", "api..business.com", "api.business.com%00.evil.test"),
    *("me@api.business.com", "evil.test\\@api.business.com", "api.business.com:0"),
    *("api.business.com:+443", "api.business.com:４４３", "api.business.com "),
    *("16843009", "0x1010101", "1.1.257", "01.1.1.1", "１.1.1.1", "1.1.1.1.1"),
    *("[2606:4700::1111%eth0]", "[1.1.1.1]", "[api.business.com]", "2606:4700::1111", ""),
]


@pytest.mark.parametrize("host", LOOKALIKES)
def test_a_host_that_is_read_in_two_ways_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"^it |^its "):
        http_url(f"https://{host}/x")


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]/"),
        ("https://XN--bcher-kva.test.:443/x?a=1#f", "https://xn--bcher-kva.test/x?a=1"),
        ("HTTP://A.api.TEST:8080/x", "http://a.api.test:8080/x"),
    ],
)
def test_the_spelling(text: str, spelled: str) -> None:
    assert str(http_url(text)) == spelled
