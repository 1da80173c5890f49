"""Reads the tracking server's address and credentials from the variables that MLflow's clients read."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from chipwatch.contract.errors import Refused
from chipwatch.net.http_client import ClientTls

URI: Final = "MLFLOW_TRACKING_URI"
CA: Final = "MLFLOW_TRACKING_SERVER_CERT_PATH"
RUN: Final = "MLFLOW_RUN_ID"
DATABRICKS: Final = re.compile(r"databricks(://.*)?")
YES: Final = frozenset({"true", "1"})
PRINTABLE: Final = re.compile("[!-~]+")


class Server(NamedTuple):
    """A tracking server's address, and the credentials and TLS settings of requests to it."""

    url: str
    headers: Mapping[str, str]
    tls: ClientTls


def store_fault(uri: str) -> str | None:
    """Return why `uri` names no server and what to do, or None; a password in it is not repeated."""
    scheme = uri.partition(":")[0].lower() if ":" in uri else ""
    if scheme in ("http", "https") or DATABRICKS.fullmatch(uri):
        return None
    is_local = scheme in ("", "file", "sqlite")
    shown = uri if is_local else f"{scheme}:..."
    what = "a store on this machine" if is_local else "the address of a database"
    return (
        f"{shown!r} is {what}, and no tracking server; start one with `mlflow server --backend-store-uri"
        f" {shown if scheme else f'file:{uri}'} --port 5000`, and set {URI}=http://127.0.0.1:5000 for the agent and for"
        " the command that trains"
    )


def url_of(uri: str, env: Mapping[str, str]) -> str:
    """Return the server's address without user and password, or "" if it is unknown or invalid."""
    if DATABRICKS.fullmatch(uri):
        host = env.get("DATABRICKS_HOST", "")
        uri = host if "://" in host or not host else f"https://{host}"
    try:
        parts = urlsplit(uri)
        if not parts.hostname or parts.port == 0 or not PRINTABLE.fullmatch(uri):
            return ""
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")


def server_of(uri: str, env: Mapping[str, str]) -> Server:
    """Return the server at `uri` with the credentials and TLS settings in `env`; raise Refused."""
    if not (url := url_of(uri, env)):
        wanted = "databricks needs DATABRICKS_HOST" if DATABRICKS.fullmatch(uri) else URI
        raise Refused(f"{wanted}: expected http://HOST:PORT, or https, without spaces")
    headers = {"Content-Type": "application/json"}
    if authorization := _authorization(uri, env):
        headers["Authorization"] = authorization
    if workspace := env.get("MLFLOW_WORKSPACE"):
        headers["X-MLFLOW-WORKSPACE"] = workspace
    certificate = env.get("MLFLOW_TRACKING_CLIENT_CERT_PATH")
    insecure = env.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in YES
    return Server(url, headers, ClientTls(env.get(CA), certificate, insecure=insecure, ca_option=CA))


def _authorization(uri: str, env: Mapping[str, str]) -> str:
    """Return the Authorization header, or "" if no credentials are set; user before token. Raise Refused."""
    user, password = env.get("MLFLOW_TRACKING_USERNAME", ""), env.get("MLFLOW_TRACKING_PASSWORD", "")
    token = env.get("MLFLOW_TRACKING_TOKEN", "")
    if DATABRICKS.fullmatch(uri):
        user, token = "", env.get("DATABRICKS_TOKEN", "")
        if not token:
            raise Refused("databricks needs DATABRICKS_TOKEN; profiles of ~/.databrickscfg are not read")
    elif not user and (given := urlsplit(uri)).username:
        user, password = unquote(given.username or ""), unquote(given.password or "")
    if user:
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
    if token and not PRINTABLE.fullmatch(token):
        raise Refused("the token has characters that HTTP does not allow")
    return f"Bearer {token}" if token else ""
