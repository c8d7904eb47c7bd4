"""The engine that keeps an index in LanceDB tables, in a folder or an object store that several machines share.

Full text, vectors and filters are the tables' own indexes. No other package knows `lancedb`.
"""

import os

# Its Rust library writes warnings to stderr of its own accord. Read once, when it is loaded.
os.environ.setdefault("LANCEDB_LOG", "error")
