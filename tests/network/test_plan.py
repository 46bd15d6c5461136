"""Addresses and delays of the network's hosts, and what counts as shared between them."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

from tests.network.link import Link
from tests.network.market import HOSTS
from tests.network.people import address_in
from tests.network.plan import Host, Plan
from tests.network.sharing import (
    Mount,
    Sharing,
    Use,
    mount_at,
    parse_map,
    parse_mount,
    shared,
    shared_mounts,
    uppermost,
)

PLAN = Plan(HOSTS)
RO = "42 1 254:0 / / ro,relatime master:1 - ext4 /dev/vda rw,discard"
HOME = "43 42 254:0 /tmp/hosts/alice /home rw,relatime - ext4 /dev/vda rw,discard"


def test_eight_hosts_and_the_auditor_s_have_private_addresses_of_their_own() -> None:
    addresses = [place(host.name) for host in HOSTS for place in (PLAN.own, PLAN.public)]
    assert len(HOSTS) == 9
    assert len(set(addresses)) == 18
    assert all(ip_address(each).is_private for each in addresses)
    assert PLAN.names()["chain.example"] == PLAN.public("chain")


def test_two_hosts_are_20_to_80_ms_apart() -> None:
    apart = [PLAN.share(one.name) + PLAN.share(other.name) for one in HOSTS for other in HOSTS if one != other]
    assert min(apart) >= 0.020
    assert 0.070 <= max(apart) <= 0.080
    assert PLAN.shares()[PLAN.public("vera")] == PLAN.share("vera")


def test_hosts_of_workers_and_the_auditor_s_have_no_open_port() -> None:
    open_ = {each.own for each in PLAN.forwards()}
    assert not open_ & {PLAN.own(name) for name in ("alice", "bob", "mallory", "auditor")}


def test_a_file_is_shared_if_two_hosts_use_it_and_one_writes() -> None:
    def use(host: str, inode: int, writes: bool) -> Use:
        return Use(host, (1, inode), f"/{inode}", writes)

    assert shared([use("a", 1, True), use("a", 1, True), use("b", 2, True)]) == set()
    assert shared([use("a", 1, False), use("b", 1, False)]) == set()
    assert shared([use("a", 1, True), use("b", 1, False), use("b", 3, True)]) == {"/1"}


def test_a_folder_is_shared_if_two_hosts_have_it_mounted_for_writing() -> None:
    def mount(root: str, writable: bool = True, kind: str = "ext4") -> Mount:
        return Mount("254:0", root, "/home", kind, writable)

    assert shared_mounts({"a": [mount("/a"), mount("/", False)], "b": [mount("/b"), mount("/", False)]}) == set()
    assert shared_mounts({"a": [mount("/a")], "b": [mount("/")]}) == {"/home"}
    assert shared_mounts({"a": [mount("/a")], "b": [mount("/ab")]}) == set()
    assert shared_mounts({"a": [mount("/", kind="proc")], "b": [mount("/", kind="proc")]}) == set()


def test_mounts_and_maps_are_read_as_the_kernel_writes_them() -> None:
    mounts = [parse_mount(line) for line in (RO, HOME)]
    assert mounts == [
        Mount("254:0", "/", "/", "ext4", False),
        Mount("254:0", "/tmp/hosts/alice", "/home", "ext4", True),
    ]
    assert mount_at(mounts, "/home/assize") is mounts[1]
    assert mount_at(mounts, "/homes") is mounts[0]
    assert uppermost([*mounts, replace(mounts[1], root="/other")]) == [mounts[0], replace(mounts[1], root="/other")]
    line = "7f0-7f1 rw-s 00000000 fe:00 77    /home/state.db-shm (deleted)"
    assert parse_map(line) == ((os.makedev(0xFE, 0), 77), "/home/state.db-shm (deleted)", True)
    assert parse_map("7f0-7f1 rw-p 00000000 00:00 0 [heap]") is None


def test_processes_of_two_hosts_that_write_one_file_are_found(tmp_path: Path) -> None:
    words = [sys.executable, "-c", f"file = open({str(tmp_path / 'shared')!r}, 'a'); print(flush=True); input()"]
    running = [subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") for _ in range(2)]
    sharing = Sharing()
    for process in running:
        assert process.stdout
        process.stdout.readline()
    sharing.look({"a": [running[0].pid], "b": [running[1].pid]})
    for process in running:
        process.communicate(b"\n")
    assert str(tmp_path / "shared") in sharing.paths()


def test_a_connection_is_late_and_comes_through_whole_unless_it_is_lost() -> None:
    async def exchange(lost: float) -> tuple[float, bytes, Link]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()) * 2)
            writer.close()
            await writer.wait_closed()

        link = Link({"127.0.0.1": 0.01}, lost, 1)
        behind = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = behind.sockets[0].getsockname()[1]
        front = await link.listen("127.0.0.2", "127.0.0.1", port, [port])
        began = asyncio.get_running_loop().time()
        reader, writer = await asyncio.open_connection("127.0.0.2", port)
        try:
            writer.write(b"x" * 300_000)
            writer.write_eof()
            answered = await reader.read(-1)
        except OSError:
            answered = b""
        seconds = asyncio.get_running_loop().time() - began
        writer.transport.abort()
        for server in (front, behind):
            server.close()
        await asyncio.sleep(0.05)  # what was aborted closes in the next turn
        return seconds, answered, link

    seconds, answered, link = asyncio.run(exchange(lost=0.0))
    assert (len(answered), link.counts["lost"]) == (600_000, 0)
    assert seconds >= 0.08, "connected, asked, and answered, 20 ms each way"
    _, answered, link = asyncio.run(exchange(lost=1.0))
    assert (answered, link.counts["lost"]) == (b"", 1)


def test_a_plan_numbers_hosts_in_their_order() -> None:
    plan = Plan((Host("a", (1, 2), ((2, (3, 4)),)), Host("b")), "127.99")
    assert [(each.public, each.own, each.port, each.behind) for each in plan.forwards()] == [
        ("127.99.1.11", "127.99.0.11", 1, (1,)),
        ("127.99.1.11", "127.99.0.11", 2, (3, 4)),
    ]


def test_the_last_address_shown_is_the_one_that_is_told() -> None:
    assert address_in("of 0x" + "1" * 40 + "\n made 0x" + "a" * 40 + " now") == "0x" + "a" * 40
