"""The limits of the service."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_network

from kmcl.errors import InputError

KILOBYTE = 2**10
MEGABYTE = 2**20
MEGAPIXEL = 1_000_000
LOCAL_PROXIES = ("127.0.0.1", "::1")

LABEL_STUDIO_URL = "http://localhost:8080"
LABEL_STUDIO_SECONDS = 90.0
"""Label Studio waits for 100 s, and sends all selected tasks in one request."""


@dataclass(frozen=True)
class ServiceSettings:
    """The limits of one service.

    max_body_bytes:   of one request; more is refused as soon as it is declared or received
    max_held_bytes:   of all requests together that are being received or processed
    max_image_pixels: width x height of one image, read from its header before anything is decoded
    max_images:       in one request
    max_maps:         saliency maps in one request; each costs about three times an image
    max_requests:     being received or processed at a time; a further client is told to retry later
    max_waiting:      images in the queue; the client of a request that would exceed it is told to retry later
    batch_size:       maximum number of images per batch; None to choose it by the image size
    timeout_seconds:  for a request, from its first byte to its response
    max_header_bytes: request line and headers of a request together
    header_seconds:   for the headers of a request, from the connection or their first byte to their last
    min_body_rate:    bytes per second of a body, on average and after a few seconds' grace
    max_requests_per_address:    as max_requests, of one client
    max_connections_per_address: open at a time, with or without a request
    allowed_hosts:    names in the Host header that are answered, without port; None for any
    trusted_proxies:  addresses or networks whose X-Forwarded-For names the client
    token:            required as `Authorization: Bearer TOKEN` for /v1, /metrics and Label Studio, which may
                      send it as a password; None for no check
    """

    max_body_bytes: int = 32 * MEGABYTE
    max_held_bytes: int = 256 * MEGABYTE
    max_image_pixels: int = 50 * MEGAPIXEL
    max_images: int = 32
    max_maps: int = 64
    max_requests: int = 64
    max_waiting: int = 256
    batch_size: int | None = None
    timeout_seconds: float = 30.0
    max_header_bytes: int = 32 * KILOBYTE
    header_seconds: float = 10.0
    min_body_rate: int = 4 * KILOBYTE
    max_requests_per_address: int = 32
    max_connections_per_address: int = 256
    allowed_hosts: tuple[str, ...] | None = None
    trusted_proxies: tuple[str, ...] = LOCAL_PROXIES
    token: str | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int | float) and value <= 0:
                raise InputError(f"{name} must be above 0; got {value}")
        if self.max_held_bytes < self.max_body_bytes:
            raise InputError(
                f"max_held_bytes ({self.max_held_bytes}) must hold at least one request of max_body_bytes "
                f"({self.max_body_bytes})"
            )
        if self.max_waiting < self.max_images:
            raise InputError(
                f"max_waiting ({self.max_waiting}) must hold at least one request of max_images "
                f"({self.max_images})"
            )
        for address in self.trusted_proxies:
            try:
                ip_network(address)
            except ValueError as error:
                raise InputError(
                    f"a trusted proxy is an IP address or a network such as 10.0.0.0/8; got {address!r}"
                ) from error
        if self.token is not None and (not self.token.isascii() or not self.token.strip()):
            raise InputError("the token must be at least one visible ASCII character")
