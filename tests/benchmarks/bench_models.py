"""Cost of embedding models: chunks a core-second, and a cold and a warm question.

    python -m tests.benchmarks.bench_models FOLDER MODEL... [--runs 7] [--models DIR] [--question TEXT]

A model is what `QMD_EMBED_MODEL` takes; `--models` is the folder with imported ones. Models take turns. Speed: runs of
240 tokens on one thread, median and best. Cold: `qmd vsearch` and `qmd query` on an index of FOLDER, processor seconds
and peak MB. Warm: one open index, processor milliseconds of a `query`, each question for the first time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from qmd.inference.engines.bulk_embedding import BulkEmbedder
from qmd.inference.engines.embedder import OnnxEmbedder
from qmd.inference.loader import load_engines
from qmd.inference.runtime.tokenization import Tokens
from qmd.inference.settings import EngineSettings

TOKENS = 240
QUESTIONS = (
    "how are vectors computed",
    "why does a search ignore my file",
    "what happens when the folder moves",
    "how do I choose another model",
    "which files are read",
    "what does the verdict mean",
    "how is relevance decided",
    "can an agent write notes",
    "where is the index kept",
    "how long does indexing take",
)
WARM = """
import sys, time, qmd
from pathlib import Path
with qmd.open_index(Path(sys.argv[1])) as index:
    index.search("warm up the models")
    for question in sys.argv[2:]:
        started = time.process_time()
        index.search(question)
        print(1000 * (time.process_time() - started))
"""


def open_embedder(model: str, models_dir: Path) -> OnnxEmbedder:
    """Open a local embedding model with one thread."""
    settings = EngineSettings(models_dir, embed=model, threads=1, allow_gpu=False)
    embedder = load_engines(settings, ["embed"]).embedder
    if isinstance(embedder, BulkEmbedder):
        embedder = embedder.inner
    if not isinstance(embedder, OnnxEmbedder):
        raise SystemExit(f"'{model}' cannot be opened")
    return embedder


def measure_speed(models: Sequence[str], models_dir: Path, runs: int) -> None:
    """Print each model's chunks a core-second."""
    opened = {model: open_embedder(model, models_dir) for model in models}
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8") * 4
    ids = {model: one.encoder.tokenizer.encode(text, TOKENS) for model, one in opened.items()}
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for round_ in range(5 * runs + 1):
        for model, one in opened.items():
            spent_s = _run(one, ids[model])
            if round_:
                spent[model].append(spent_s)
    for model, values in spent.items():
        print(f"{model:32} {1 / statistics.median(values):6.1f} chunks a core-second, best {1 / min(values):.1f}")


def _run(embedder: OnnxEmbedder, tokens: Tokens) -> float:
    started = time.process_time()
    embedder.encoder.encode(tokens)
    return time.process_time() - started


def measure_questions(folder: Path, models: Sequence[str], models_dir: Path, runs: int, question: str) -> None:
    """Print the cost of a cold and of a warm question, with an index for each model."""
    cold: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    warm: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as made:
        for number, model in enumerate(models):
            (Path(made) / str(number) / ".cache" / "qmd").mkdir(parents=True)
            (Path(made) / str(number) / ".cache" / "qmd" / "models").symlink_to(models_dir.absolute())
            _measure(_environment(Path(made), number, model), "index", str(folder), "-q")
        for round_ in range(runs + 1):
            for number, model in enumerate(models):
                environment = _environment(Path(made), number, model)
                for command in ("vsearch", "query"):
                    cost = _measure(environment, command, question)
                    if round_:
                        cold[model, command].append(cost)
                index = Path(made) / str(number) / ".cache" / "qmd" / "index.sqlite"
                command_line = [sys.executable, "-c", WARM, str(index), *QUESTIONS]
                done = subprocess.run(command_line, env=environment, capture_output=True, text=True, check=True)
                warm[model] += map(float, done.stdout.split())
    for (model, command), values in cold.items():
        spent_s, peak_mb = statistics.median(one[0] for one in values), max(one[1] for one in values)
        print(f"{model:32} cold {command:8} {spent_s:.3f} s {peak_mb:4.0f} MB")
    for model, milliseconds in warm.items():
        print(f"{model:32} warm query {statistics.mean(milliseconds):6.1f} ms")


def _environment(place: Path, number: int, model: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    return {**kept, "HOME": str(place / str(number)), "QMD_EMBED_MODEL": model, "QMD_FORCE_CPU": "1"}


def _measure(environment: dict[str, str], *argv: str) -> tuple[float, float]:
    """Return the processor seconds and peak MB of a command."""
    command_line, nothing = [sys.executable, "-m", "qmd", *argv], subprocess.DEVNULL
    process = subprocess.Popen(command_line, env=environment, stdout=nothing, stderr=nothing)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"qmd {' '.join(argv)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--models", type=Path, default=Path("no-models"), dest="models_dir")
    parser.add_argument("--question", default="how do I add a folder of notes?")
    options = parser.parse_args()
    # Before models are open here: a new process counts the memory of the one that starts it.
    measure_questions(options.folder, options.models, options.models_dir, options.runs, options.question)
    measure_speed(options.models, options.models_dir, options.runs)


if __name__ == "__main__":
    main()
