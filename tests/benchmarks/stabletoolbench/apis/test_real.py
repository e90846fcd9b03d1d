"""Real APIs: who may be asked, what is sent, and servers that do not behave."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.apis.real import RealApis, RealConfig, accepts, read_key
from ace_ray.errors import UserError
from ace_ray.models.http import HttpRequest, PublicHttp, Reply, TransportFailed
from ace_ray.models.urls import AllowList, Refused, check_addresses, is_public
from tests.benchmarks.stabletoolbench.an_api import an_api

web = pytest.importorskip("aiohttp.web")

KEY = 'very"secret/key'
URL = "https://sports.api.test/players/{Player ID}"
API = an_api(url="https://sports.api.test/players/details")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPORTS_KEY", KEY)


def replied(status: int, body: bytes, location: str = "") -> Reply:
    return Reply(status, {"Location": location} if location else {}, body)


class Recorded:
    """A transport that gives the replies it was told to, the last one for ever."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies, self.asked = replies, list[HttpRequest]()

    async def fetch(self, request: HttpRequest) -> Reply:
        self.asked.append(request)
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        if isinstance(reply, Exception):
            raise reply
        return reply


def config(**changes: Any) -> RealConfig:
    return RealConfig(**{"hosts": [".api.test"], "key_env": "SPORTS_KEY", **changes})


def call(
    transport: Any, api: Any = API, rules: Any = "fixed", said: Any = None, **changes: Any
) -> Answered:
    real = RealApis(config(**changes), transport, rules)
    return asyncio.run(real.answer(api, {"player_id": "7"} if said is None else said))


OK = replied(200, b'{"name": "Messi"}')


class TestRequests:
    """What goes out."""

    def test_a_get_carries_published_names_and_the_key_in_a_header(self) -> None:
        transport = Recorded(OK)
        said = {"player_id": "a&b=c #", "is_from": None, "n": 5, "b": True, "x": [1]}
        answered = call(transport, said=said)
        assert (answered.error, answered.response) == ("", {"name": "Messi"})
        assert (answered.source, answered.origin, answered.failure) == ("real", "real", "")
        (request,) = transport.asked
        assert request.url == (
            "https://sports.api.test/players/details"
            "?Player+ID=a%26b%3Dc+%23&from=&n=5&b=true&x=%5B1%5D"
        )
        assert (request.method, request.body) == ("GET", None)
        assert request.headers["X-RapidAPI-Key"] == KEY
        assert request.headers["X-RapidAPI-Host"] == "sports.api.test"
        assert KEY not in repr(request)

    def test_a_post_carries_json(self) -> None:
        transport = Recorded(OK)
        call(transport, an_api(url=API.url, method="post"), said={"player_id": [1]})
        assert json.loads(transport.asked[0].body or b"") == {"Player ID": [1]}
        assert transport.asked[0].url == API.url

    @pytest.mark.parametrize("value", ["../../admin", "a/b", "@evil.test", "a?x=1#y", "\ud800"])
    def test_arguments_in_a_path_stay_one_part_of_it(self, value: str) -> None:
        transport = Recorded(OK)
        api = an_api(url="https://sports.api.test/p/{id}/x", required=[], optional=[])
        assert call(transport, api, said={"id": value}).failure == ""
        url = transport.asked[0].url
        assert url.startswith("https://sports.api.test/p/")
        assert url.endswith("/x")
        assert url.count("/") == 5
        assert not set("?#@") & set(url)

    @pytest.mark.parametrize(
        ("url", "said"),
        [
            ("https://sports.api.test/p/{id}", {"id": ".."}),
            ("https://sports.api.test/p/{id}", {}),
            ("https://{id}.api.test/p", {"id": "evil"}),
            ("https://{id}", {"id": "sports.api.test"}),
            ("https://sports.api.test/p", {"id": "x" * 9000}),
            ("https://sports.api.test/p", ["7"]),
            ("", {}),
            ("http://sports.api.test/p", {}),
            ("file:///etc/passwd", {}),
            ("https://sports.api.test:22/p", {}),
            ("https://sports.api.test:99999/p", {}),
            ("https://user:pw@sports.api.test/p", {}),
            ("https://sports.api.test@evil.test/p", {}),
            ("https://evil.test\\@sports.api.test/p", {}),
            ("https://evil.test/sports.api.test", {}),
            ("https://sports.api.test.evil.test/p", {}),
            ("https://evilapi.test/p", {}),
            ("https://api.test/p", {}),
            ("https://[::1]/p", {}),
            ("https://127.0.0.1/p", {}),
            ("https://[oops/p", {}),
            ("https://sports.api.test/\r\nX: y", {}),
        ],
    )
    def test_nothing_goes_anywhere_else(self, url: str, said: Any) -> None:
        transport = Recorded(OK)
        answered = call(transport, an_api(url=url), said=said)
        assert (answered.failure, answered.response, transport.asked) == ("real", "", [])

    @pytest.mark.parametrize("method", ["DELETE", "PUT", "", "GET\r\nX"])
    def test_only_get_and_post(self, method: str) -> None:
        transport = Recorded(OK)
        assert call(transport, an_api(url=API.url, method=method)).failure == "real"
        assert not transport.asked

    def test_a_service_is_asked_in_toolbenchs_form(self) -> None:
        transport = Recorded(replied(200, b'{"error": "", "response": {"a": 1}}'))
        answered = call(transport, an_api(), service_url="https://tools.api.test/rapidapi")
        assert answered.response == {"a": 1}
        (request,) = transport.asked
        assert (request.method, request.url) == ("POST", "https://tools.api.test/rapidapi")
        assert request.headers["toolbench_key"] == KEY
        assert json.loads(request.body or b"") == {
            "category": "News_Media",
            "tool_name": "clique",
            "api_name": "player_details",
            "tool_input": {"player_id": "7"},
            "strip": "",
            "toolbench_key": KEY,
        }


class TestReplies:
    """What comes back, with a transport that plays it."""

    @pytest.mark.parametrize(
        ("status", "body", "error", "failure"),
        [
            (200, b"plain text", "", ""),
            (200, b"", "", ""),
            (204, b"", "", ""),
            (400, b'{"m": "bad id"}', "Message error...", ""),
            (401, b"{}", "Unauthorized error...", "real"),
            (403, b"{}", "Unauthorized error...", "real"),
            (404, b"{}", "API not working error...", "real"),
            (429, b"{}", "Too many requests error...", "real"),
            (500, b"{}", "Message error...", "real"),
            (504, b"{}", "Timeout error...", "real"),
            (302, b"", "Message error...", "real"),
        ],
    )
    def test_fixed_goes_by_the_status(
        self, status: int, body: bytes, error: str, failure: str
    ) -> None:
        answered = call(Recorded(replied(status, body)))
        assert (answered.error, answered.failure) == (error, failure)

    @pytest.mark.parametrize(
        ("response", "accepted"),
        [
            ({"name": "Messi"}, True),
            ("", False),
            ({"price": 1500}, False),
            ({"note": "the parameter x"}, False),
            ("Sparse data", False),
            ("got an unexpected keyword argument 'parameter'", True),
            ("Rate Limit reached", False),
            ("request Timed Out", False),
            ({"message": "API doesn't exists"}, False),
            ("API doesn't exists", True),
            ("service not found", True),
            ("Service Not Found", False),
            ("access_denied", True),
            ("ACCESS_DENIED", False),
            ("you are not authorized", False),
            ("status_code=429", False),
            ("STATUS_CODE=429", True),
            ([], True),
        ],
    )
    def test_official_goes_by_what_the_text_contains(self, response: Any, accepted: bool) -> None:
        assert accepts(200, "", response, "official") is accepted
        assert accepts(200, "", response, "fixed")
        assert not accepts(200, "e", response, "official")

    def test_a_service_that_says_something_else(self) -> None:
        for body in [b"<html>", b"[]", b'{"error": 1}', b'{"response": 1}', b"[" * 5000]:
            transport = Recorded(replied(200, body))
            answered = call(transport, service_url="https://tools.api.test/x")
            assert (answered.failure, answered.response) == ("real", "")

    def test_the_key_is_struck_out(self) -> None:
        said = json.dumps({"headers": {"key": KEY}, "url": "https://x/?k=very%22secret%2Fkey"})
        answered = call(Recorded(replied(200, said.encode())))
        assert "secret" not in json.dumps(answered.response)
        assert "***" in json.dumps(answered.response)
        spelled = "".join(f"\\u{ord(char):04x}" for char in KEY)
        hidden = call(Recorded(replied(200, f'{{"{spelled}": ["{spelled}"]}}'.encode())))
        assert hidden.response == {"***": ["***"]}
        plain = call(Recorded(replied(200, f"your key is {KEY}".encode())))
        assert plain.response == "your key is ***"

    def test_deep_and_odd_bodies_are_text(self) -> None:
        assert call(Recorded(replied(200, b"[" * 5000))).response == "[" * 5000
        assert call(Recorded(replied(200, b"\xff\xfe"))).response == "��"
        assert call(Recorded(replied(200, b"[NaN]"))).response == ["NaN"]

    def test_a_key_of_digits_leaves_numbers_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPORTS_KEY", "7")
        assert call(Recorded(replied(200, b'[17, "17"]'))).response == [17, "1***"]

    def test_failures_of_the_transport(self) -> None:
        slow = call(Recorded(TransportFailed("timeout", "slow")))
        assert (slow.error, slow.failure) == ("Timeout error...", "real")
        other = call(Recorded(TransportFailed("failed", "no answer (X)")))
        assert other.error == "request invalid, data error: no answer (X)"


class TestRedirects:
    """A redirect is a request of the server's making."""

    def test_on_the_same_host_it_is_followed(self) -> None:
        moved = replied(301, b"", "/v2/details")
        transport = Recorded(moved, OK)
        assert call(transport).response == {"name": "Messi"}
        assert transport.asked[1].url == "https://sports.api.test/v2/details"

    @pytest.mark.parametrize(
        "location",
        [
            "https://[oops",
            "https://other.api.test/x",
            "https://evil.test/x",
            "//evil.test/x",
            "http://sports.api.test/x",
            "http://169.254.169.254/latest/meta-data",
            "file:///etc/passwd",
            "https://sports.api.test:8443/",
            "https://ſports.api.test/x",
            "https://sports.api.test@evil.test/x",
            "https://sports.api.test../x",
            "https:\\\\evil.test/x",
        ],
    )
    @pytest.mark.parametrize("allow_http", [False, True])
    def test_elsewhere_it_is_not(self, location: str, allow_http: bool) -> None:
        transport = Recorded(replied(302, b"", location), OK)
        answered = call(transport, allow_http=allow_http)
        assert (answered.failure, len(transport.asked)) == ("real", 1)

    def test_from_plain_http_to_the_same_host_over_https(self) -> None:
        """A server's other port may be another's, and never is plain HTTP the way of a key."""
        api = an_api(url="http://sports.api.test:8080/players")
        for location, asked in [
            ("https://SPORTS.api.test.:443/x", "https://sports.api.test/x"),
            ("http://sports.api.test:8081/x", None),
            ("https://sports.api.test:8443/x", None),
            ("https://other.api.test/x", None),
        ]:
            transport = Recorded(replied(302, b"", location), OK)
            call(transport, api, allow_http=True)
            assert [request.url for request in transport.asked[1:]] == [asked] * bool(asked)
        secure = an_api(url="https://sports.api.test:8443/players")
        transport = Recorded(replied(302, b"", "https://sports.api.test/x"), OK)
        call(transport, secure, allow_http=True)
        assert len(transport.asked) == 1

    def test_for_ever_it_is_not(self) -> None:
        transport = Recorded(replied(302, b"", "/again"))
        assert call(transport).failure == "real"
        assert len(transport.asked) == 4

    def test_a_post_is_not_sent_twice(self) -> None:
        transport = Recorded(replied(307, b"", "/again"), OK)
        assert call(transport, an_api(url=API.url, method="POST")).failure == "real"
        assert len(transport.asked) == 1


PRIVATE = [
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1"),
    *("240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *(
        "fd12::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
    ),
    *("64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::1", "2001:0:1::1"),
    *("100::1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "1.1.1.1.1"),
]


LOOKALIKES = [
    # With two versions of IDNA, with compatibility letters, with another dot.
    *("api.busineß.com", "api.busineſſ.com", "ａｐｉ.business.com", "api。business.com"),
    *(
        "api.business.com\u200d",
        "api.business.com\u00ad",
        "api%2ebusiness.com",
    ),
    *(
        "api.business.com..",
        ".api.business.com",
        "api..business.com",
        "api.business.com%00.evil.test",
    ),
    *("me@api.business.com", "api.business.com@evil.test", "api.business.com:80@evil.test"),
    *("api.business.com\\.evil.test", "evil.test\\@api.business.com", "api.business.com:0"),
    *(
        "api.business.com:+443",
        "api.business.com:４４３",
        "api.business.com ",
    ),
    # 1.1.1.1 in other notations, and one that some readers take for octal.
    *(
        "16843009",
        "0x1010101",
        "0x1.1.1.1",
        "1.1.257",
        "01.1.1.1",
        "１.1.1.1",
        "1.1.1.1.1",
        "①.1.1.1",
    ),
    *("[2606:4700::1111%25eth0]", "[2606:4700::1111%eth0]", "[1.1.1.1]"),
    *("[v1.api.business.com]", "[api.business.com]", "2606:4700::1111", "[2606:4700::1111]x", ""),
]


async def nobody(name: str, port: int) -> list[str]:
    raise AssertionError(f"{name} was looked up")


class TestAddresses:
    """What a name may stand for."""

    @pytest.mark.parametrize("address", [*PRIVATE, ""])
    def test_not_public(self, address: str) -> None:
        assert not is_public(address)
        with pytest.raises(Refused):
            check_addresses(["1.1.1.1", address])

    @pytest.mark.parametrize(
        "address", ["1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8"]
    )
    def test_public(self, address: str) -> None:
        assert check_addresses([address]) == [address]

    def test_no_address(self) -> None:
        with pytest.raises(Refused):
            check_addresses([])

    @pytest.mark.parametrize(
        "hosts",
        [
            *(
                [],
                [""],
                ["."],
                [".com"],
                ["a/b"],
                ["*.x.org"],
                ["a b"],
                ["a..b"],
                [".."],
                [".a..b"],
            ),
            *(["localhost:8080"], [".x.org:443"], ["1.1.1.1:80"], ["a:b:c"], ["::1:x"], [":80"]),
        ],
    )
    def test_a_list_that_is_none(self, hosts: list[str]) -> None:
        with pytest.raises(UserError, match=r"real\.hosts"):
            AllowList.of(hosts, "real.hosts")

    def test_names_are_compared_as_they_are_looked_up(self) -> None:
        hosts = ["xn--Bcher-kva.test.", ".API.test", "2606:4700:4700:0::1111"]
        allowed = AllowList.of(hosts, "hosts")
        for asked, found in [
            ("https://[2606:4700:4700::1111]/", "https://[2606:4700:4700::1111]/"),
            ("https://XN--bcher-kva.test:443/x?a=1#f", "https://xn--bcher-kva.test/x?a=1"),
            ("HTTPS://A.api.TEST./x", "https://a.api.test/x"),
        ]:
            assert str(allowed.check(asked)) == found

    @pytest.mark.parametrize("host", LOOKALIKES)
    def test_a_host_that_is_read_in_two_ways_is_not_asked(self, host: str) -> None:
        allowed = AllowList.of(["api.business.com", "1.1.1.1", "2606:4700::1111"], "hosts")
        with pytest.raises(Refused):
            allowed.check(f"https://{host}/x")
        request = HttpRequest("GET", f"https://{host}/x", {"key": KEY}, None, 1.0, 1)
        with pytest.raises(Refused):  # the client, too, whoever asks it
            asyncio.run(PublicHttp(nobody).fetch(request))
        transport = Recorded(OK)
        asked = call(transport, an_api(url=f"https://{host}/x"), hosts=["api.business.com"])
        assert (asked.failure, transport.asked) == ("real", [])

    @pytest.mark.parametrize(
        "host",
        ["xn--api.business.com", "api.business.com:444", "[::ffff:1.1.1.1]", "x.api.business.com"],
    )
    def test_another_host_is_not_asked(self, host: str) -> None:
        allowed = AllowList.of(["api.business.com", "1.1.1.1"], "hosts")
        with pytest.raises(Refused):
            allowed.check(f"https://{host}/x")

    def test_a_list_names_hosts_in_ascii(self) -> None:
        with pytest.raises(UserError, match=r"^real\.hosts: 'bücher.test' .* write its xn-- form"):
            AllowList.of(["bücher.test"], "real.hosts")


class TestConfig:
    """What a user may ask for."""

    def test_a_key_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for value in ["", "  ", "a\nb", "ü"]:
            monkeypatch.setenv("SPORTS_KEY", value)
            with pytest.raises(UserError, match=r"real\.key_env: .*SPORTS_KEY"):
                read_key(config(), "real")
        # What only reads a run asks nobody, and needs no key.
        RealApis(config(), Recorded(OK), "fixed")

    def test_a_service_that_is_not_on_the_list(self) -> None:
        with pytest.raises(UserError, match="service_url"):
            RealApis(config(service_url="https://evil.test/x"), Recorded(OK), "fixed")

    @pytest.mark.parametrize("more", ["?key=hidden", "#hidden", "?#hidden"])
    @pytest.mark.parametrize("user", ["", "me:hidden@", "hidden@"])
    def test_a_services_url_has_no_room_for_secrets(self, more: str, user: str) -> None:
        url = f"https://{user}tools.api.test/x{more}"
        with pytest.raises(UserError, match=r"^real\.service_url: ") as caught:
            RealApis(config(service_url=url), Recorded(OK), "fixed")
        assert "hidden" not in str(caught.value)

    def test_without_a_key_none_is_sent(self) -> None:
        transport = Recorded(OK)
        call(transport, key_env=None)
        assert "X-RapidAPI-Key" not in transport.asked[0].headers


Handler = Callable[[Any], Awaitable[Any]]


def served(
    handler: Handler,
    *,
    looked_up: list[str] | None = None,
    judged: bool = False,
    host: str = "sports.api.test",
    **changes: Any,
) -> tuple[Answered, int]:
    """One call to a local server under a public name: the answer, and the requests it got."""
    hits = 0

    async def play() -> Answered:
        async def counted(request: Any) -> Any:
            nonlocal hits
            hits += 1
            return await handler(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", counted)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]

        async def look_up(name: str, at: int) -> list[str]:
            assert name == host
            return looked_up or ["127.0.0.1"]

        transport = PublicHttp(look_up) if judged else PublicHttp(look_up, lambda found: found)
        try:
            api = an_api(url=f"http://{host}:{port}/players")
            hosts = [".api.test", "127.0.0.1", "::1"]
            settings = config(allow_http=True, hosts=hosts, **changes)
            return await RealApis(settings, transport, "fixed").answer(api, {"player_id": "7"})
        finally:
            await transport.close()
            await runner.cleanup()

    return asyncio.run(play()), hits


def test_a_server_is_asked_under_its_own_name() -> None:
    seen: dict[str, Any] = {}

    async def handler(request: Any) -> Any:
        seen.update(request.headers, query=dict(request.query))
        response = web.json_response({"name": "Messi"})
        response.set_cookie("a", "b")
        return response

    answered, hits = served(handler)
    assert (answered.response, hits) == ({"name": "Messi"}, 1)
    assert seen["Host"].startswith("sports.api.test:")
    assert seen["X-RapidAPI-Key"] == KEY
    assert seen["query"] == {"Player ID": "7"}


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.1.2.3", "::1"])
def test_a_name_with_a_private_address_is_not_connected_to(address: str) -> None:
    async def handler(request: Any) -> Any:
        return web.json_response({})

    answered, hits = served(handler, looked_up=["1.1.1.1", address], judged=True)
    assert (answered.failure, hits) == ("real", 0)
    assert "not public" in answered.error


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "127.1"])
def test_an_address_in_any_spelling_is_judged_too(host: str) -> None:
    async def handler(request: Any) -> Any:
        return web.json_response({})

    answered, hits = served(handler, judged=True, host=host)
    assert (answered.failure, hits) == ("real", 0)


def test_a_redirect_to_this_machine_is_not_followed() -> None:
    async def handler(request: Any) -> Any:
        if request.host.startswith("127.0.0.1"):
            return web.json_response({})
        raise web.HTTPFound(f"http://127.0.0.1:{request.url.port}/")

    answered, hits = served(handler)
    assert (answered.failure, hits) == ("real", 1)


def test_a_slow_drip_ends_at_the_deadline() -> None:
    async def handler(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b" ")
            await asyncio.sleep(0.01)
        return response

    answered, _ = served(handler, timeout_s=0.2)
    assert (answered.error, answered.failure) == ("Timeout error...", "real")


def test_an_endless_answer_is_cut_off() -> None:
    async def handler(request: Any) -> Any:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(1000):
            await response.write(b"x" * 65_536)
        return response

    answered, _ = served(handler, max_bytes=200_000)
    assert answered.failure == "real"
    assert "more than 200,000 bytes" in answered.error


def test_a_compressed_answer_is_not_unpacked() -> None:
    async def handler(request: Any) -> Any:
        body = gzip.compress(b"x" * 10_000_000)
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    answered, _ = served(handler)
    assert "compressed" in answered.error


def test_a_server_that_hangs_up() -> None:
    async def handler(request: Any) -> Any:
        request.transport.close()
        return web.Response()

    answered, _ = served(handler)
    assert answered.failure == "real"
    assert "127.0.0.1" not in answered.error
    assert "Player" not in answered.error


def test_a_run_is_scored_without_the_keys_of_its_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPORTS_KEY", raising=False)
    real = {"hosts": ["a.test"], "key_env": "SPORTS_KEY", "service_url": "https://a.test/x"}
    options = {"data": "mini", "judge": "none", "apis": ["real"], "real": real}
    made = make_benchmark("stabletoolbench", options)
    made.entries()
    made.ready(named=False)
    # What episodes start with.
    with pytest.raises(UserError, match=r"real\.key_env: .*'SPORTS_KEY' holds no key"):
        made.service()


def test_an_unknown_key_is_named_where_it_is() -> None:
    options = {"data": "mini", "real": {"hosts": ["a.test"], "tiemout_s": 3}}
    with pytest.raises(UserError, match=r"'real\.tiemout_s'; did you mean 'timeout_s'"):
        make_benchmark("stabletoolbench", options)
