"""Every environment variable and every key of `index.yml` that changes the behaviour of qmd, in one list each.

`qmd doctor` and the reference of the configuration come from these lists; a test compares them with the code.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from qmd.inference.settings import OPTION_VARIABLES
from qmd.plugins import hooks

Area = Literal["places", "models", "model servers", "terminal", "servers", "limits", "trust"]


class Variable(Struct, frozen=True):
    """Environment variable."""

    name: str
    effect: str
    """Effect, one line."""
    default: str = ""
    """Value without it; empty for none."""
    area: Area = "places"
    matters_at: str | None = None
    """The one value that has an effect; None for any."""
    setting: str = ""
    """Key of `index.yml` with the same effect; a key of `models` precedes the variable."""


class Setting(Struct, frozen=True):
    """Key of `index.yml`; `NAME` is a placeholder for a collection's name."""

    key: str
    effect: str
    default: str = ""


def _option(key: str, effect: str, default: str) -> Variable:
    return Variable(OPTION_VARIABLES[key], effect, default, "models", setting=f"models.{key}")


_SECONDS = "seconds, or 5m, 2h, off"
_OWN_MODEL = "a folder's or a server's model; empty: none"
_RERANK_FORM = "form of the model that reranks: auto, published, i16w8, i16w16, q8, fp32"
_GENERATE_FORM = "form of the model that proposes queries: auto, published, q4 or q8"
_LINK_ADDRESS = "address that links of results open: {path}, {line}, {col}"

VARIABLES: tuple[Variable, ...] = (
    Variable("QMD_CONFIG_DIR", "folder of index.yml", "~/.config/qmd"),
    Variable("INDEX_PATH", "file or address of the index", "~/.cache/qmd/index.sqlite"),
    Variable("XDG_CONFIG_HOME", "parent of the folder qmd with index.yml", "~/.config"),
    Variable("XDG_CACHE_HOME", "parent of the folder qmd with indexes and models", "~/.cache"),
    Variable("QMD_AUTO_UPDATE", "0, false: searches do not look for changed files", "true", setting="auto_update"),
    Variable("QMD_AUTO_EMBED", "0, false: idle servers compute no missing vectors", "true", setting="auto_embed"),
    Variable("QMD_SKILLS_DIR", "folder of skills, in place of those that ship"),
    Variable("QMD_EMBED_MODEL", "model that computes vectors", "auto", "models", setting="models.embed"),
    Variable("QMD_RERANK_MODEL", "model that reranks", "auto", "models", setting="models.rerank"),
    Variable("QMD_GENERATE_MODEL", "model that proposes more queries", "auto", "models", setting="models.generate"),
    Variable("QMD_RERANK_FORM", _RERANK_FORM, "auto", "models", setting="models.rerank_form"),
    Variable("QMD_GENERATE_FORM", _GENERATE_FORM, "auto", "models", setting="models.generate_form"),
    _option("embed.query_prompt", f"text put before a query, for {_OWN_MODEL}", "the model's"),
    _option("embed.document_prompt", f"text put before a note, for {_OWN_MODEL}", "the model's"),
    _option("embed.dim", "size of vectors: a folder's are cut to it, a server's must have it", "the model's"),
    _option("embed.max_tokens", "most tokens of a chunk, for every model; at least 16", "the model's"),
    _option("embed.threads", "texts that are embedded at the same time", "threads"),
    _option("rerank.context", "tokens of the longest prompt, up to the limit of the graph", "fits 512 of a note"),
    _option("generate.context", "capacity of the KV cache in tokens, prompt and lines", "as needed"),
    Variable("QMD_LLAMA_GPU", "off: keeps every model on the CPU; other words change nothing", "on", "models"),
    Variable("QMD_FORCE_CPU", "keeps every model on the CPU", "off", "models"),
    Variable("QMD_GPU_DEVICE", "number of the GPU that models use", "0", "models"),
    Variable(
        "QMD_GPU_MEMORY", "MiB of its memory that the models together may take", "90 % of the free ones", "models"
    ),
    Variable("QMD_RUNTIME", "cpu: installing from a folder skips the packages for a GPU", "gpu", "models"),
    Variable("QMD_OFFLINE", "downloads no model and asks only servers on this machine", "off", "models"),
    Variable("HF_ENDPOINT", "mirror to fetch models from", "https://huggingface.co", "models"),
    Variable("HF_TOKEN", "login for models that require one", "", "models"),
    Variable("HF_HOME", "folder where the login for models is kept", "~/.cache/huggingface", "models"),
    Variable("CUDA_VISIBLE_DEVICES", "GPUs that models may use", "all", "models"),
    Variable("QMD_EMBED_URL", "server that computes vectors", "", "model servers"),
    Variable("QMD_RERANK_URL", "server that reranks", "", "model servers"),
    Variable("QMD_GENERATE_URL", "server that proposes more queries", "", "model servers"),
    Variable("QMD_EMBED_API", "interface of that server (models-reference.md)", "found out", "model servers"),
    Variable("QMD_RERANK_API", "the same of the server that reranks", "found out", "model servers"),
    Variable("QMD_GENERATE_API", "the same of the server that proposes queries", "found out", "model servers"),
    Variable("QMD_API_KEY", "key for every model server", "", "model servers"),
    Variable("QMD_EMBED_API_KEY", "key for the server that computes vectors", "QMD_API_KEY", "model servers"),
    Variable("QMD_RERANK_API_KEY", "key for the server that reranks", "QMD_API_KEY", "model servers"),
    Variable("QMD_GENERATE_API_KEY", "key for the server that proposes queries", "QMD_API_KEY", "model servers"),
    Variable("QMD_REMOTE_TIMEOUT", "seconds to wait for a model server", "30", "model servers"),
    Variable("HTTP_PROXY", "proxy for http addresses", "", "model servers"),
    Variable("HTTPS_PROXY", "proxy for https addresses", "", "model servers"),
    Variable("ALL_PROXY", "proxy for fetching models", "", "model servers"),
    Variable("NO_PROXY", "hosts that are reached without a proxy", "", "model servers"),
    Variable("QMD_EDITOR_URI", _LINK_ADDRESS, "file://, in a vault obsidian://", "terminal", setting="editor_uri"),
    Variable("VISUAL", "editor of 'qmd open'", "EDITOR", "terminal"),
    Variable("EDITOR", "editor of all programs", "the desktop's program for notes", "terminal"),
    Variable("QMD_PAGER", "pager for long results; empty for none", "PAGER", "terminal"),
    Variable("PAGER", "pager of all programs; empty for none", "less", "terminal"),
    Variable("LESS", "options of less", "FRX", "terminal"),
    Variable("NO_COLOR", "no colours and no links", "", "terminal"),
    Variable("FORCE_COLOR", "colours and links, also through a pipe", "", "terminal"),
    Variable("CLICOLOR_FORCE", "the same as FORCE_COLOR", "", "terminal"),
    Variable("CLICOLOR", "0: no colours and no links", "", "terminal"),
    Variable("COLORTERM", "truecolor: the terminal shows all colours", "", "terminal"),
    Variable("QMD_DEBUG", "shows tracebacks of unexpected errors, and why a server on stdin ends", "off", "terminal"),
    Variable("TERM", "dumb: no colours, no links, no pager", "", "terminal", matters_at="dumb"),
    Variable(
        "QMD_DAEMON", "auto: keep models loaded between queries; 0: ask no such process", "asked if it runs", "servers"
    ),
    Variable("QMD_DAEMON_IDLE", f"idle time after which that process ends: {_SECONDS}", "15m", "servers"),
    Variable("QMD_HOST", "address that servers listen on", "localhost", "servers"),
    Variable("QMD_TOKEN", "token that clients of the HTTP server must send", "", "servers"),
    Variable("QMD_ALLOWED_HOSTS", "further host names that clients may use, with commas", "", "servers"),
    Variable("QMD_ALLOWED_ORIGINS", "web pages that may send requests, with commas", "", "servers"),
    Variable("QMD_MODEL_TTL", f"idle time after which servers drop models: {_SECONDS}", "5m", "limits"),
    Variable("QMD_REQUEST_TIMEOUT", f"longest time for one answer of a server: {_SECONDS}", "2m", "limits"),
    Variable("QMD_HOOK_TIMEOUT", "seconds that an update command may take; 0 for no limit", "600", "limits"),
    Variable("QMD_SQLITE_BUSY_TIMEOUT", "milliseconds to wait for another process", "120000", "limits"),
    Variable("QMD_TRUST_LOCAL_CONFIG", "trusts every project's .qmd without asking", "off", "trust"),
    Variable("QMD_TRUST_UPDATE_HOOKS", "the same, by its older name", "off", "trust"),
)

SETTINGS: tuple[Setting, ...] = (
    Setting("collections.NAME.path", "the folder; relative to index.yml, or to the project of a .qmd"),
    Setting("collections.NAME.pattern", "glob of the files to index", "**/*.md"),
    Setting("collections.NAME.ignore", "globs of files to skip"),
    Setting("collections.NAME.gitignore", "false: index files that .gitignore names, too", "true"),
    Setting("collections.NAME.context", "texts that describe folders, shown with every result from there"),
    Setting("collections.NAME.update", "command that 'qmd update' runs first in the folder"),
    Setting("collections.NAME.includeByDefault", "false: searched only when it is named", "true"),
    Setting("collections.NAME.agents_may_write", "true: agents may add notes; ignored in a project's file", "false"),
    Setting("global_context", "text that describes all collections, shown with every result"),
    *(Setting(one.setting, one.effect, one.default) for one in VARIABLES if one.setting),
    Setting("models.generate.max_tokens", "tokens of all lines that it writes, 32 to 512", "108"),
    Setting("models.threads", "threads of each model, 1 to 256", "CPUs that qmd may use"),
    Setting("models.gpu_layers", "0: never the GPU; any other number: whole models, never part of one", "all"),
    Setting("models.ROLE.url", "for a role of the three above: address of the server that has its model"),
    Setting("models.ROLE.model", "name of the model on that server"),
    Setting("models.ROLE.api", "interface of that server (models-reference.md)", "found out"),
    *(Setting(f"sampling.{name}", *listed) for name, listed in hooks.sampling_effects().items()),
)
