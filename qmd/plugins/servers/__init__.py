"""Model servers: an address comes in, engines that call it go out. It knows no files and no ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qmd.errors import ModelError
from qmd.inference.base import Embedder, EngineProvider, Expander, Reranker
from qmd.inference.records import EmbedOverrides, ModelChoice, Role
from qmd.inference.settings import AUTO, BUILT_IN, WORK, EngineSettings

if TYPE_CHECKING:
    from qmd.plugins.servers.client import RemoteClient


class ServerProvider(EngineProvider):
    """Provider of `http://HOST/v1#NAME`, and of servers that the environment names."""

    def open_embedder(self, choice: ModelChoice, settings: EngineSettings) -> Embedder:
        """Open an embedder; ask the server for the size of its vectors unless the settings state it."""
        from qmd.plugins.servers.engines import RemoteEmbedder

        embedder = RemoteEmbedder(_client("embed", settings))
        if embedder.settings.dim is None:
            embedder.embed_queries(["size"])
        return embedder

    def open_reranker(self, choice: ModelChoice, settings: EngineSettings) -> Reranker:
        """Open a reranker without a request."""
        from qmd.plugins.servers.engines import RemoteReranker

        return RemoteReranker(_client("rerank", settings))

    def open_expander(self, choice: ModelChoice, settings: EngineSettings) -> Expander:
        """Open an expander without a request."""
        from qmd.plugins.servers.expander import RemoteExpander

        return RemoteExpander(_client("expand", settings))


def _client(role: Role, settings: EngineSettings) -> RemoteClient:
    from qmd.plugins.servers.client import RemoteClient
    from qmd.plugins.servers.settings import remote_settings

    name = settings.model_for(role)
    overrides = settings.embed_overrides if role == "embed" else EmbedOverrides()
    server = remote_settings(role, "" if name in (AUTO, BUILT_IN) else name, settings.env, overrides)
    if server is None:
        raise ModelError(f"'{name}' is not the address of a server")
    return RemoteClient(server, WORK[role])
