"""The ways out that were named, and no other: a service of this machine, hosts behind the proxy. All on loopback."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.config.hosts import host_and_port
from turnwise.errors import SandboxError
from turnwise.sandbox.box import Box
from turnwise.sandbox.folder import GuestFolder
from turnwise.sandbox.limits import Allowed, BoxLimits
from turnwise.sandbox.proxy import HostList

LIMITS = BoxLimits(seconds=20)
ASK = "curl -sS --max-time 10"


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        said = f"{self.path} {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def box(place: Path, allowed: Allowed) -> Box:
    try:
        made = Box(GuestFolder(place), LIMITS, allowed)
    except SandboxError as e:
        pytest.skip(str(e))
    if made.run("curl --version").status:
        pytest.skip("there is no curl in /usr/bin")
    return made


def test_one_service_of_the_machine_is_reached_and_nothing_else(tmp_path: Path, port: int) -> None:
    inside = box(tmp_path, Allowed(reach={"gateway": f"127.0.0.1:{port}"}))
    for host in ("127.0.0.1", "gateway"):
        ran = inside.run(f"{ASK} http://{host}:{port}/v1")
        assert ran.output.decode() == f"/v1 {host}:{port}"
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = inside.run(f"{ASK} http://127.0.0.1:{other.getsockname()[1]}/")
        assert ran.status != 0 and b"connect" in ran.output.lower()
    assert inside.run(f"{ASK} http://192.0.2.1/").status != 0
    (tmp_path / "sent").write_bytes(b"x" * 3_000_000)
    ran = inside.run(f"{ASK} -H Expect: --data-binary @sent http://gateway:{port}/ | cmp - sent && echo whole")
    assert ran.output == b"whole\n"


def test_what_is_behind_may_be_gone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ran = box(tmp_path, Allowed(reach={"gateway": f"127.0.0.1:{port}"})).run(f"{ASK} http://gateway:{port}/")
    assert ran.status != 0 and ran.stopped_by is None


def test_the_proxy_leads_to_named_hosts_alone(tmp_path: Path, port: int) -> None:
    inside = box(tmp_path, Allowed(hosts=(f"localhost:{port}",)))
    for how in ("", "--proxytunnel"):
        ran = inside.run(f"unset no_proxy NO_PROXY; {ASK} {how} http://localhost:{port}/a?b=1")
        assert ran.output.decode() == f"/a?b=1 localhost:{port}"
        for other in (f"127.0.0.1:{port}", "localhost:1", "example.org"):
            ran = inside.run(f"unset no_proxy NO_PROXY; {ASK} {how} -i http://{other}/")
            assert b"403" in ran.output and f"/a {other}".encode() not in ran.output
    assert inside.run(f"{ASK} --noproxy '*' http://127.0.0.1:{port}/").status != 0, "there is no way around it"


@pytest.mark.parametrize(
    ("request_line", "said"),
    [
        ("GET / HTTP/1.1", b"400"),
        ("GET ftp://localhost/ HTTP/1.1", b"400"),
        ("GET http://localhost:99999/ HTTP/1.1", b"400"),
        ("CONNECT localhost HTTP/1.1", b"400"),
        ("GET http://localhost:{port}@example.org/ HTTP/1.1", b"403"),
        ("GET http://example.org/x@localhost:{port}/ HTTP/1.1", b"403"),
        ("GET http://[::1]:{port}/ HTTP/1.1", b"403"),
        ("nonsense", b"400"),
        ("GET http://localhost/" + "a" * 100_000 + " HTTP/1.1", b"431"),
    ],
)
def test_a_request_that_is_none_is_refused(tmp_path: Path, port: int, request_line: str, said: bytes) -> None:
    inside = box(tmp_path, Allowed(hosts=(f"localhost:{port}",)))
    (tmp_path / "asked").write_text(f"{request_line.format(port=port)}\r\nHost: localhost:{port}\r\n\r\n")
    ran = inside.run("exec 3<>/dev/tcp/127.0.0.1/3128; cat asked >&3; head -n 1 <&3")
    assert said in ran.output


def test_a_name_of_the_world_leads_to_no_private_address(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given, **more: there)  # as the owner of a name can have it
    inside = box(tmp_path, Allowed(hosts=(f"example.org:{port}",)))
    ran = inside.run(f"{ASK} http://example.org:{port}/a")
    assert b"private address" in ran.output


def test_files_and_variables_are_given_by_name(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "program").write_text("runs")
    given = Allowed(sees={"/opt/agent": tmp_path / "agent"}, variables={"KEY": "a key"})
    ran = box(tmp_path / "box", given).run('cat /opt/agent/program; echo "|$KEY"; echo mine > /opt/agent/program')
    assert ran.output.startswith(b"runs|a key\n") and b"Read-only" in ran.output
    assert (tmp_path / "agent" / "program").read_text() == "runs"


@pytest.mark.parametrize("where", ["", "localhost", ":1", "a:0", "a:65536", "a:x", "ä:1", "a:1:b", "a:1:2"])
def test_what_names_no_service_is_told(where: str) -> None:
    with pytest.raises(SandboxError, match="no host and port"):
        host_and_port(where)


def test_a_list_of_hosts_and_services_that_cannot_be_is_told() -> None:
    with pytest.raises(SandboxError, match="no host and port"):
        HostList(["a:b"])
    with pytest.raises(SandboxError, match="asked for twice"):
        Allowed(reach={"a": "127.0.0.1:80", "b": "127.0.0.2:80"}).ports()
    with pytest.raises(SandboxError, match="no name of a service"):
        Allowed(reach={"a b": "127.0.0.1:80"}).ports()
