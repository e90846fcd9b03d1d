"""Addresses that are not asked, against the special-purpose registries of IANA."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network

import pytest

from ace_ray.models.urls import is_public

# iana-ipv4-special-registry, iana-ipv6-special-registry, iana-multicast-addresses and what IPv4
# keeps in reserve, one entry a line of them.
SPECIAL = [
    *("0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8"),
    *("169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32"),
    *("192.0.0.9/32", "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24"),
    *("192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16"),
    *("192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
    *("255.255.255.255/32", "224.0.0.0/4", "224.0.0.0/24", "232.0.0.0/8", "239.0.0.0/8"),
    *("::1/128", "::/128", "::/96", "64:ff9b::/96", "64:ff9b:1::/48"),
    *("100::/64", "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:1::1/128"),
    *("2001:1::2/128", "2001:1::3/128", "2001:2::/48", "2001:3::/32", "2001:4:112::/48"),
    *("2001:10::/28", "2001:20::/28", "2001:30::/28", "2001:db8::/32", "2002::/16"),
    *("2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10"),
    *("fec0::/10", "ff00::/8"),
]
METADATA = {
    "169.254.169.254": "most clouds",
    "169.254.170.2": "ECS tasks",
    "168.63.129.16": "Azure's host agent",
    "100.100.100.200": "Alibaba",
    "192.0.0.192": "Oracle",
    "fd00:ec2::254": "EC2 over IPv6",
    "fd20:ce::254": "Google over IPv6",
    "fe80::a9fe:a9fe": "OpenStack over IPv6",
}
PRIVATE_V4 = ["10.0.0.1", "127.0.0.1", "169.254.169.254", "168.63.129.16", "192.0.0.192"]


@pytest.mark.parametrize("network", SPECIAL)
def test_no_address_of_a_special_range_is_public(network: str) -> None:
    found = ip_network(network)
    step = max(1, found.num_addresses // 64)
    for number in {*range(0, found.num_addresses, step), found.num_addresses - 1}:
        assert not is_public(str(found[number])), found[number]


@pytest.mark.parametrize("address", METADATA)
def test_no_clouds_metadata_service_is_public(address: str) -> None:
    assert not is_public(address)
    if "." in address:
        assert not is_public(f"::ffff:{address}")


@pytest.mark.parametrize("inner", PRIVATE_V4)
def test_no_way_around_a_private_address_is_public(inner: str) -> None:
    number = int(ip_address(inner))
    ways = [
        (0xFFFF << 32) | number,  # IPv4-mapped
        number,  # IPv4-compatible
        (0x0064FF9B << 96) | number,  # NAT64
        (0x0064FF9B0001 << 80) | number,  # NAT64 of a site
        (0x2002 << 112) | (number << 80) | 1,  # 6to4
        (0x20010000 << 96) | (number << 64) | number,  # Teredo: its server
        (0x20010000 << 96) | (number ^ 0xFFFFFFFF),  # Teredo: its client
    ]
    for way in ways:
        assert not is_public(str(IPv6Address(way))), IPv6Address(way)


@pytest.mark.parametrize(
    "address",
    [
        *("1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"),
        *("168.63.129.15", "168.63.129.17", "172.15.255.255", "172.32.0.0", "191.255.255.255"),
        *("192.0.1.0", "192.0.3.0", "198.17.255.255", "198.20.0.0", "223.255.255.255"),
        *("2001:200::1", "2001:4860:4860::8888", "2606:4700:4700::1111", "2a00:1450::1"),
        "::ffff:8.8.8.8",
    ],
)
def test_their_neighbours_are_public(address: str) -> None:
    assert is_public(address)
