"""Where the server sends what it has observed: addresses and headers, from the command line and the environment.

`penstock console` makes them; `exporter.py` reads them. Headers may hold secrets, and are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from penstock.engine.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Where to, and how often.

    Args:
        otlp: of an OpenTelemetry collector, `http://host:4318`; metrics go to its `/v1/metrics`, spans to `/v1/traces`.
        otlp_headers: of each request there.
        openlineage: of a server; events go to its `/api/v1/lineage`.
        openlineage_key: it is sent as a bearer token.
        namespace: of the jobs, in lineage.
        every: seconds between two sendings of metrics, and between two signs of life of a job in lineage.

    Raises:
        ConfigurationError: an address is no `http://` or `https://` URL, or has a password in it.
    """

    otlp: str | None = None
    otlp_headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    openlineage: str | None = None
    openlineage_key: str | None = field(default=None, repr=False)
    namespace: str = "penstock"
    every: float = 60.0

    def __post_init__(self) -> None:
        for option, url in (("--otlp", self.otlp), ("--openlineage", self.openlineage)):
            if url is not None and "@" in urlsplit(url).netloc:
                raise ConfigurationError(
                    f"{option} must be without user and password; give keys by OTEL_EXPORTER_OTLP_HEADERS and "
                    "OPENLINEAGE_API_KEY"
                )
            if url is not None and not _is_address(url):
                raise ConfigurationError(f"{option} must be a URL such as http://127.0.0.1:4318, not {url!r}")

    @property
    def is_wanted(self) -> bool:
        """Whether anything is to be sent."""
        return self.otlp is not None or self.openlineage is not None


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        # Asked for, a port that is no number is an error.
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        return is_whole and url.isprintable() and " " not in url
    except ValueError:
        return False


def export_options(otlp: str | None, openlineage: str | None, environment: Mapping[str, str]) -> ExportOptions:
    """Those of the command line, with what OpenTelemetry's and OpenLineage's own variables say beside it.

    Args:
        otlp, openlineage: addresses; None or empty: nothing is sent there.
        environment: of which `OTEL_EXPORTER_OTLP_HEADERS` (`name=value` with commas between), `OPENLINEAGE_API_KEY`
            and `OPENLINEAGE_NAMESPACE` are read.

    Raises:
        ConfigurationError: as for `ExportOptions`, or the headers cannot be read.
    """
    headers = []
    for part in filter(None, environment.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")):
        name, equals, value = part.partition("=")
        text = unquote(value.strip())
        if not equals or not name.strip() or not text.isprintable():
            raise ConfigurationError("OTEL_EXPORTER_OTLP_HEADERS must be name=value, with commas between, on one line")
        headers.append((name.strip(), text))
    return ExportOptions(
        otlp or None,
        tuple(headers),
        openlineage or None,
        environment.get("OPENLINEAGE_API_KEY") or None,
        environment.get("OPENLINEAGE_NAMESPACE") or "penstock",
    )
