"""Two examples of each command, for its help, the reference and the man page; a test runs them in a folder of notes.

That folder holds `pricing.md`, `ideas.md` and `daily/2026-03-01.md`, and is the collection `notes`. Each example fits a
line of 80 columns.
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST_EXAMPLES = ('qmd query "why did we choose per-seat pricing"', 'qmd search "rate limiter" -n 10')
"""What a newcomer sees of `qmd` alone."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "index": ("qmd index ~/notes", "qmd index ~/notes --glob '**/*.{md,txt}' --name texts"),
    "search": ('qmd search "rate limiter"', "qmd search pricing -c notes -n 10 --sort date"),
    "vsearch": ('qmd vsearch "how customers pay"', 'qmd vsearch "saving money" -c notes --json'),
    "query": (FIRST_EXAMPLES[0], 'qmd query "what did we decide last week" -c notes --explain'),
    "browse": ("qmd browse", "qmd browse pricing -c notes"),
    "get": ("qmd get pricing.md", "qmd get notes/daily/2026-03-01.md:5-9"),
    "multi-get": ("qmd multi-get 'daily/*.md'", "qmd multi-get pricing.md ideas.md --format json"),
    "open": ("qmd open pricing.md", "qmd open notes/daily/2026-03-01.md:5 --print"),
    "links": ("qmd links pricing.md", 'qmd links "ideas" --json'),
    "related": ("qmd related pricing.md", "qmd related ideas -n 3 -c notes"),
    "ls": ("qmd ls", "qmd ls notes/daily"),
    "status": ("qmd status", "qmd status --json"),
    "doctor": ("qmd doctor", "qmd doctor --json"),
    "bench": ("qmd bench --names", "qmd bench --names 50 --backends bm25"),
    "collection add": (
        "qmd collection add ~/notes --name texts --mask '**/*.txt'",
        "qmd collection add . --name here",
    ),
    "collection list": ("qmd collection list", "qmd collection list --json"),
    "collection show": ("qmd collection show notes", "qmd collection info notes"),
    "collection rename": ("qmd collection rename notes vault", "qmd collection mv notes vault"),
    "collection remove": ("qmd collection remove notes", "qmd collection remove notes && qmd cleanup"),
    "collection include": ("qmd collection include notes", "qmd collection include notes && qmd collection list"),
    "collection exclude": ("qmd collection exclude notes", "qmd collection exclude notes && qmd collection list"),
    "collection update-cmd": (
        "qmd collection update-cmd notes git pull --rebase",
        "qmd collection update-cmd notes",
    ),
    "context add": (
        'qmd context add qmd://notes/daily "what I did, day by day"',
        'qmd context add / "Everything I have written since 2019"',
    ),
    "context list": ("qmd context list", "qmd context list | head"),
    "context rm": ("qmd context rm qmd://notes/daily", "qmd context rm /"),
    "context check": ("qmd context check", "qmd context check | head"),
    "update": ("qmd update", "qmd update -c notes --pull"),
    "embed": ("qmd embed", "qmd embed -c notes --timeout 5"),
    "cleanup": ("qmd cleanup --dry-run", "qmd cleanup"),
    "store copy": ("qmd store copy index spare", "qmd store copy index notes.sqlite"),
    "init": ("cd ~/projects/site && qmd init", "qmd init && qmd index ."),
    "trust": ("qmd trust", "qmd trust list"),
    "serve": ("qmd serve --open", "qmd serve --port 9000 --watch"),
    "mcp": ("qmd mcp --print-config claude", "qmd mcp --http --daemon"),
    "watch": ("qmd watch", "qmd watch -c notes --no-embed"),
    "skill show": ("qmd skill show", "qmd --skill"),
    "skill install": ("qmd skill install", "qmd skill install --global --yes"),
    "skills list": ("qmd skills list", "qmd skills list --json"),
    "skills get": ("qmd skills get qmd", "qmd skills get --all --json"),
    "skills path": ("qmd skills path", "qmd skills path qmd --json"),
    "pull": ("qmd pull", "qmd pull Qwen3-Reranker-0.6B"),
    "models list": ("qmd models list", "qmd models list --json"),
    "models pull": ("qmd models pull", "qmd models pull Qwen3-0.6B"),
    "models prepare": ("qmd models prepare", "qmd models prepare Qwen3-0.6B --form q8"),
    "models path": ("qmd models path all-MiniLM-L6-v2", "ls $(qmd models path all-MiniLM-L6-v2)"),
    "models verify": ("qmd models verify", "qmd models verify all-MiniLM-L6-v2"),
    "models remove": (
        "qmd models remove Qwen3-Reranker-0.6B",
        "qmd models remove Qwen3-0.6B",
    ),
    "models export": (
        "qmd models export all-MiniLM-L6-v2 minilm.tar.gz",
        "qmd models export all-MiniLM-L6-v2 ~/models/minilm",
    ),
    "models import": (
        "qmd models import minilm.tar.gz",
        "qmd models import ~/models/minilm --name all-MiniLM-L6-v2",
    ),
    "completion": (
        "source <(qmd completion bash)",
        "qmd completion fish > ~/.config/fish/completions/qmd.fish",
    ),
}
