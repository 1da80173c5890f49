"""TLS, client certificates and basic auth, by files as exporters have them, with real handshakes."""

import base64
import contextlib
import datetime as dt
import http.client
import logging
import socket
import ssl
from types import SimpleNamespace

import bcrypt
import pytest
import yaml
from tests.certificates import Authority

from chipwatch.contract.datapoint import gauge
from chipwatch.contract.errors import Refused
from chipwatch_sinks.prometheus import PrometheusSink

LONG = 60.0
POINT = gauge("cpu.utilization", "%", "Share.").point(1_800_000_000_000_000_000, 50)
USERS = {"prom": bcrypt.hashpw("öpen:sesame".encode(), bcrypt.gensalt(4)).decode()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder)
    server, client = authority.sign("server"), authority.sign("client")
    (folder / "elsewhere").mkdir()
    stranger = Authority(folder / "elsewhere").sign("stranger")
    return SimpleNamespace(
        folder=folder, ca=authority.file, server=server, client=client, stranger=stranger, authority=authority
    )


@pytest.fixture
def configured(made, at_the_end):
    def make(settings, *, listen="127.0.0.1:0"):
        file = made.folder / "web.yml"
        file.write_text(settings if isinstance(settings, str) else yaml.safe_dump(settings))
        file.chmod(0o600)
        sink = PrometheusSink(PrometheusSink.Config(listen=listen, web_config_file=file))
        at_the_end.callback(sink.close)
        sink.open()
        sink.write([POINT])
        return sink

    return make


def tls(made, **more):
    return {"tls_server_config": {"cert_file": "server.pem", "key_file": "server.key", **more}}


def get(sink, made, *, client=None, user=None, **versions):
    port = sink._server.port
    if sink.url.startswith("https"):
        context = ssl.create_default_context(cafile=made.ca)
        for name, value in versions.items():
            setattr(context, name, value)
        if client:
            context.load_cert_chain(*client)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=LONG, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    headers = {"Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"} if user else {}
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_the_page_is_served_over_tls_and_not_without(configured, made):
    sink = configured(tls(made))
    assert get(sink, made)[:2] == (
        200,
        b"# HELP cpu_utilization_ratio Share.\n# TYPE cpu_utilization_ratio gauge\ncpu_utilization_ratio 0.5\n",
    )
    with socket.create_connection(("127.0.0.1", sink._server.port), timeout=LONG) as plain:
        plain.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"200" not in plain.recv(1000)
    assert get(sink, made)[0] == 200


def test_a_large_page_comes_whole_over_tls(configured, made):
    sink = configured(tls(made))
    many = [gauge(f"a.b{n}", "1", "x" * 1000).point(POINT.at, n) for n in range(3000)]
    sink.write(many)
    body = get(sink, made)[1]
    assert len(body) > 3_000_000
    assert body.endswith(b"a_b2999 2999\n")


def test_a_handshake_that_does_not_go_on_hinders_nobody(configured, made):
    sink = configured(tls(made))
    with socket.create_connection(("127.0.0.1", sink._server.port), timeout=LONG) as lazy:
        lazy.sendall(b"\x16\x03\x01")
        assert get(sink, made)[0] == 200


def test_a_client_certificate_is_needed_where_it_is_required(configured, made):
    sink = configured(tls(made, client_auth_type="RequireAndVerifyClientCert", client_ca_file="ca.pem"))
    assert get(sink, made, client=made.client)[0] == 200
    for client in (None, made.stranger):
        with pytest.raises(OSError):  # noqa: PT011  # an alert of TLS, or the end of the connection
            get(sink, made, client=client)


def test_versions_of_tls_come_from_the_file(configured, made):
    sink = configured(tls(made, min_version="TLS13"))
    assert get(sink, made)[0] == 200
    with pytest.raises(ssl.SSLError):
        get(sink, made, maximum_version=ssl.TLSVersion.TLSv1_2)


def test_cipher_suites_have_the_names_of_go(configured, made):
    sink = configured(
        tls(
            made,
            max_version="TLS12",
            cipher_suites=["TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"],
        )
    )
    context = ssl.create_default_context(cafile=made.ca)
    with (
        socket.create_connection(("127.0.0.1", sink._server.port), timeout=LONG) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
    ):
        assert sock.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"


@pytest.mark.parametrize("user", ["prom:öpen:sesame", "prom:wrong", "nobody:öpen:sesame", ":", "prom", None])
def test_only_users_with_their_password_are_answered(configured, made, user):
    sink = configured({"basic_auth_users": USERS})
    for _ in range(2):  # also once the answer is known
        status, body, headers = get(sink, made, user=user)
        assert status == (200 if user == "prom:öpen:sesame" else 401)
        assert (b"cpu_utilization" in body) is (status == 200)
        assert (headers["WWW-Authenticate"] == 'Basic realm="chipwatch"') is (status == 401)


@pytest.mark.parametrize(
    "header", ["Basic", "Basic ü", "Basic !!", "Bearer x", "Basic " + base64.b64encode(b"\xff:\xff").decode()]
)
def test_an_odd_authorization_is_not_admitted(configured, made, header):
    sink = configured({"basic_auth_users": USERS})
    connection = http.client.HTTPConnection("127.0.0.1", sink._server.port, timeout=LONG)
    connection.request("GET", "/metrics", headers={"Authorization": header.encode("latin-1")})
    assert connection.getresponse().status == 401
    connection.close()


def test_guessed_passwords_are_remembered_only_up_to_a_number(configured, made):
    sink = configured({"basic_auth_users": USERS})
    assert get(sink, made, user="prom:öpen:sesame")[0] == 200
    for n in range(150):
        assert get(sink, made, user=f"prom:{n}")[0] == 401
    assert [len(keys) for keys in sink._web._checked.values()] == [1, 100]  # guesses do not push out who is known


def test_a_user_who_is_known_does_not_wait_for_the_checks_of_others(configured, made):
    sink = configured({"basic_auth_users": {"prom": bcrypt.hashpw(b"sesame", bcrypt.gensalt(8)).decode()}})
    assert get(sink, made, user="prom:sesame")[0] == 200
    with contextlib.ExitStack() as guesses:
        for n in range(40):
            guess = base64.b64encode(f"prom:{n}".encode()).decode()
            sock = guesses.enter_context(socket.create_connection(("127.0.0.1", sink._server.port), LONG))
            sock.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Basic {guess}\r\n\r\n".encode())
        assert get(sink, made, user="prom:sesame")[0] == 200
        assert len(sink._web._checked[False]) < 35


def test_headers_of_the_file_are_sent(configured, made):
    sink = configured({"http_server_config": {"http2": False, "headers": {"X-Frame-Options": "deny"}}})
    assert get(sink, made)[2]["X-Frame-Options"] == "deny"


def test_a_changed_file_counts_at_once_and_a_broken_one_does_not(configured, made, caplog):
    sink = configured("{}")
    file = made.folder / "web.yml"
    assert get(sink, made)[0] == 200
    file.write_text(yaml.safe_dump({"basic_auth_users": USERS}))
    assert get(sink, made)[0] == 401
    with caplog.at_level(logging.ERROR):
        file.write_text("basic_auth_users: [")
        assert [get(sink, made)[0] for _ in range(3)] == [401] * 3
    assert [record.message for record in caplog.records] == [
        f"{file}: not YAML, line 1; the settings from before are kept"
    ]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (("tls and users", "{}"), "TLS"),
        (("tls and users", "users"), "TLS"),
        (("users", "{}"), "a password or a client certificate"),
        (("tls and users", "tls"), "a password or a client certificate"),
    ],
)
def test_a_changed_file_never_opens_a_page_that_was_protected(configured, made, caplog, change, what):
    parts = {"tls": tls(made), "users": {"basic_auth_users": USERS}, "{}": {}}
    before, after = (
        {key: value for word in name.split(" and ") for key, value in parts[word].items()} for name in change
    )
    sink, file = configured(before), made.folder / "web.yml"
    file.write_text(yaml.safe_dump(after))
    assert [get(sink, made)[0] for _ in range(3)] == [401] * 3
    assert get(sink, made, user="prom:öpen:sesame")[0] == 200
    assert sink._web.encrypts is ("tls" in change[0])
    assert [record.message for record in caplog.records] == [
        f"{file}: it no longer asks for {what}; restart the agent if that is meant; the settings from before are kept"
    ]


def test_passwords_may_be_replaced_by_client_certificates(configured, made):
    sink = configured({"basic_auth_users": USERS, **tls(made)})
    more = {"client_auth_type": "RequireAndVerifyClientCert", "client_ca_file": "ca.pem"}
    (made.folder / "web.yml").write_text(yaml.safe_dump(tls(made, **more)))
    sink._web.context()
    assert sink._web.protects
    assert not sink._web._file.basic_auth_users


@pytest.mark.parametrize(
    "broken",
    [
        "", "# nothing\n", "a: 2026-99-99", "a: 0x_", "!!bool x", "!!timestamp x", "[" * 2000,
        'tls_server_config: {cert_file: "a\\0", key_file: k}', 'tls_server_config: {cert_file: "\\ud800", key_file: k}',
        "tls_server_config: {cert_file: server.pem, key_file: server.key, min_version: TLS13, max_version: TLS12}",
    ],
)  # fmt: skip
def test_a_file_that_breaks_while_it_is_in_use_changes_nothing(configured, made, caplog, broken):
    sink = configured({"basic_auth_users": USERS})
    (made.folder / "web.yml").write_text(broken)
    assert [get(sink, made)[0] for _ in range(3)] == [401] * 3
    assert get(sink, made, user="prom:öpen:sesame")[0] == 200
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_certificate_that_comes_after_the_file_that_names_it_counts(configured, made):
    sink = configured(tls(made))
    (made.folder / "web.yml").write_text(
        yaml.safe_dump({"tls_server_config": {"cert_file": "late.pem", "key_file": "late.key"}})
    )
    assert get(sink, made)[0] == 200
    made.authority.sign("late")
    with socket.create_connection(("127.0.0.1", sink._server.port), timeout=LONG) as sock:
        context = ssl.create_default_context(cafile=made.ca)
        with context.wrap_socket(sock, server_hostname="127.0.0.1") as secured:
            assert dict(pair[0] for pair in secured.getpeercert()["subject"])["commonName"] == "late"


def test_a_renewed_certificate_counts_for_the_next_connection(configured, made, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.sign("a"))
    sink = configured({"tls_server_config": {"cert_file": certificate, "key_file": key}})
    seen = set()
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", sink._server.port), timeout=LONG) as raw,
            ssl._create_unverified_context().wrap_socket(raw) as sock,
        ):
            seen.add(sock.getpeercert(binary_form=True))
        authority.sign("a")
    assert len(seen) == 2


BAD = [
    ("basic_auth_users: [", "not YAML, line 1"),
    ("- a", "Expected `object`, got `array`"),
    ("tls_config: {}", "unknown field `tls_config`"),
    ("basic_auth_users: {prom: sesame}", "basic_auth_users.prom: not a password hashed by bcrypt"),
    ("tls_server_config: {cert_file: server.pem}", "missing required field `key_file`"),
    ("tls_server_config: {cert_file: none.pem, key_file: server.key}", "No such file or directory"),
    ("tls_server_config: {cert_file: web.yml, key_file: server.key}", "web.yml"),
    ("tls_server_config: {cert_file: server.pem, key_file: client.key}", "KEY_VALUES_MISMATCH"),
    ("tls_server_config: {cert_file: old.pem, key_file: old.key}", "certificate has expired"),
    ("tls_server_config: {cert_file: server.pem, key_file: server.key, min_version: SSL3}", "min_version: 'SSL3' is not supported"),
    ("tls_server_config: {cert_file: server.pem, key_file: server.key, cipher_suites: [A_WITH_B]}", "none of them is known: A_WITH_B"),
    ("tls_server_config: {cert_file: server.pem, key_file: server.key, client_auth_type: RequireAnyClientCert}", "'RequireAnyClientCert' is not supported"),
    ("tls_server_config: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem}", "client_ca_file and client_auth_type need each other"),
    ("http_server_config: {headers: {Server: x}}", "headers: 'Server' is not supported"),
    ('http_server_config: {headers: {X-Frame-Options: "a\\r\\nb"}}', "characters that HTTP does not allow"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "told"), BAD, ids=[told for _, told in BAD])
def test_a_file_that_cannot_be_used_is_refused_with_one_line_and_without_secrets(configured, made, text, told):
    made.authority.sign("old", -dt.timedelta(days=1))
    with pytest.raises(Refused) as refused:
        configured(text)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "sesame" not in str(refused.value)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(Refused, match=r"none.yml: No such file or directory"):
        PrometheusSink(PrometheusSink.Config(listen="127.0.0.1:0", web_config_file=tmp_path / "none.yml")).open()


def test_rights_of_files_are_checked(configured, made, caplog):
    key = made.server[1]
    key.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        configured(tls(made))
    assert f"{key}: every user may read it" in caplog.text
    key.chmod(0o602)
    with pytest.raises(Refused, match="every user may write it; chmod o-w"):
        configured(tls(made))
    key.chmod(0o600)


def test_a_page_that_strangers_reach_is_reported_once(configured, made, caplog):
    with caplog.at_level(logging.WARNING):
        configured({}, listen="0.0.0.0:0")
        assert caplog.text.count("is open to everyone who reaches it") == 1
        configured({"basic_auth_users": USERS}, listen="0.0.0.0:0")
        configured({})
    assert caplog.text.count("is open to everyone who reaches it") == 1
