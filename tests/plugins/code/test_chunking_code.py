"""Source code: declarations with their comments, borders between them, qualified names."""

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmd.chunking.split import Declaration, split_code
from qmd.errors import GrammarError
from qmd.indexing.reading import declared_headings
from qmd.plugins.code.declarations import find_declarations
from qmd.plugins.code.languages import has_grammar, language_of
from qmd.records import Chunk
from tests.regex_tokens import regex_token_starts

PYTHON = '''"""A shop."""
import os

LIMIT = 3


# Keeps the till.
# Never twice.
@final
class Store(Base):
    """Where things are sold."""

    count = 0

    @property
    def size(self) -> int:
        return self.count

    # Opens the door.
    async def open(self, key: str) -> None:
        await unlock(key)  # slow


def main() -> None:
    Store().open("k")


if __name__ == "__main__":
    main()
'''

TYPESCRIPT = """import x from "x";

/** Sells. */
@Injectable()
export class Store<T> extends Base {
  /** Opens. */
  @log()
  async open(key: string): Promise<void> { unlock(key); }
  close = () => { lock(); };
}

export interface Key { teeth: number }
export type Keys = Key[];
export enum Colour { Red }
export const findKey = async (keys: Keys) => keys[0];
const LIMIT = 3;
namespace Inner { export function deep() {} }
export default function () {}
"""

JAVASCRIPT = """// Opens.
function open(key) { return <Door key={key} />; }
const close = function () {};
Store.prototype.sell = function (x) { return x; };
class Till { #sum = 0; add(x) { this.#sum += x; } }
module.exports = { open };
"""

GO = """package shop

// Store sells.
type Store[T any] struct{ n int }

type (
	A int
	B string
)

// Open opens the door.
func (s *Store[T]) Open(key string) error { return nil }

func main() {}
"""

RUST = """//! A shop.

/// Sells.
#[derive(Debug)]
pub struct Store { n: u32 }

impl fmt::Display for Store {
    /// Shows.
    #[inline]
    fn fmt(&self, f: &mut Formatter) -> Result { Ok(()) }
}

mod tests {
    #[test]
    fn opens() {}
}
"""

JAVA = """package shop;

/** Sells. */
@Entity
public class Store {
    private int n;

    /** Opens. */
    @Override
    public void open(String key) { unlock(key); }

    enum Colour { RED }
}
"""

C = """#include <stdio.h>

/* Opens. */
static int *open_index(const char *key) { return 0; }

struct store { int n; };
typedef struct { int n; } Till;
#ifdef DOOR
void close_store(void) {}
#endif
struct store shared;
"""

EXTRA = {
    "a.cpp": (
        "namespace shop {\n// Sells.\ntemplate <class T> class Store {\n public:\n  void open() {}\n};\n}\n"
        "int shop::Store::size() const { return 1; }\n",
        ["namespace shop", "class Store", "open", "shop::Store::size"],
    ),
    "a.cs": (
        "namespace Shop { /// <summary>\n public class Store { public void Open() {} } }\n",
        ["namespace Shop", "class Store", "Open"],
    ),
    "a.rb": (
        "module Shop\n  # Sells.\n  class Store\n    def open; end\n    def self.make; end\n  end\nend\n",
        ["module Shop", "class Store", "def open", "def self.make"],
    ),
    "a.php": (
        "<?php\nnamespace Shop;\n/** Sells. */\nclass Store { function open() {} }\nfunction main() {}\n",
        ["class Store", "function open", "function main"],
    ),
    "a.sh": ("# Opens.\nopen() {\n  echo\n}\n", ["function open"]),
}


def names(path: str, text: str) -> list[str]:
    return [heading.text for heading in declared_headings(find_declarations(path, text))]


def by_name(path: str, text: str) -> dict[str, str]:
    """Return the source of every declaration."""
    found: dict[str, str] = {}

    def add(declarations: Sequence[Declaration]) -> None:
        for one in declarations:
            found[one.name] = text[one.start : one.end]
            add(one.children)

    add(find_declarations(path, text))
    return found


def split(path: str, text: str, max_tokens: int = 60) -> tuple[Chunk, ...]:
    return split_code(text, find_declarations(path, text), regex_token_starts(text), max_tokens, 8)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.py", PYTHON, "class Store|def size|def open|def main"),
        (
            "a.ts",
            TYPESCRIPT,
            "class Store|open|close|interface Key|type Keys|enum Colour|const findKey|namespace Inner|function deep"
            "|function",
        ),
        ("a.jsx", JAVASCRIPT, "function open|const close|Store.prototype.sell|class Till|add"),
        ("a.go", GO, "type Store|type A, B|func Store.Open|func main"),
        ("a.rs", RUST, "struct Store|impl fmt::Display for Store|fn fmt|mod tests|fn opens"),
        ("A.java", JAVA, "class Store|open|enum Colour"),
        ("a.c", C, "open_index|struct store|typedef Till|close_store"),
    ],
)
def test_declarations_are_found_with_keyword_and_name(path: str, text: str, expected: str) -> None:
    assert "|".join(names(path, text)) == expected


@pytest.mark.parametrize("path", EXTRA)
def test_declarations_of_further_languages_are_found_where_their_grammar_is_installed(path: str) -> None:
    if not has_grammar(path):
        pytest.skip("the grammar is not installed")
    text, expected = EXTRA[path]
    assert names(path, text) == expected


@pytest.mark.parametrize(
    ("path", "text", "name", "first", "last"),
    [
        ("a.py", PYTHON, "class Store", "# Keeps the till.", "    await unlock(key)  # slow"),
        ("a.py", PYTHON, "def size", "    @property", "        return self.count"),
        ("a.py", PYTHON, "def open", "    # Opens the door.", "        await unlock(key)  # slow"),
        ("a.ts", TYPESCRIPT, "class Store", "/** Sells. */", "}"),
        ("a.ts", TYPESCRIPT, "open", "  /** Opens. */", "  async open(key: string): Promise<void> { unlock(key); }"),
        ("a.go", GO, "func main", "func main() {}", "func main() {}"),
        ("a.rs", RUST, "struct Store", "/// Sells.", "pub struct Store { n: u32 }"),
        ("A.java", JAVA, "open", "    /** Opens. */", "    public void open(String key) { unlock(key); }"),
    ],
)
def test_comments_and_decorators_stay_with_their_code(path: str, text: str, name: str, first: str, last: str) -> None:
    lines = by_name(path, text)[name].rstrip("\n").split("\n")
    assert (lines[0].strip(), lines[-1].strip()) == (first.strip(), last.strip())


@pytest.mark.parametrize(
    "before", ["# Licence.\n\n", "x = 1  # one\n"], ids=["set apart by a blank line", "behind code"]
)
def test_a_comment_that_belongs_to_no_declaration(before: str) -> None:
    assert by_name("a.py", f"{before}def f(): pass\n") == {"def f": "def f(): pass\n"}


def test_functions_inside_a_short_function_are_not_declarations_of_their_own() -> None:
    text = "def outer():\n    def inner(): pass\n"
    assert names("a.py", text) == ["def outer"]
    assert names("a.py", text + "    x = 1\n" * 300) == ["def outer", "def inner"]


def test_declarations_under_a_condition_are_found() -> None:
    assert names("a.py", "if X:\n    def f(): pass\nelse:\n    def g(): pass\n") == ["def f", "def g"]


def test_offsets_count_characters_not_bytes() -> None:
    text = "s = '🎉 größer'\n\ndef f(): return 'ä'\n\nclass C:\n    def m(self): pass\n"
    assert by_name("a.py", text)["def f"] == "def f(): return 'ä'\n"
    assert by_name("a.py", text)["def m"] == "    def m(self): pass\n"


def test_a_header_that_holds_cpp_is_not_read_as_c() -> None:
    if not has_grammar("a.hpp"):
        pytest.skip("the grammar is not installed")
    assert names("a.h", "class Store {\n public:\n  void open() {}\n};\n") == ["class Store", "open"]


def test_prose_and_unknown_endings_have_no_language() -> None:
    assert [language_of(path) for path in ("a.md", "Makefile", "a.txt", "py")] == [None] * 4
    assert find_declarations("a.md", PYTHON) == ()


def test_a_broken_source_gives_its_readable_declarations() -> None:
    assert "def good" in names("a.py", "def good(): pass\n\nclass Broken(:\n  def ((\n\ndef later(): pass\n")


def test_a_very_long_and_a_minified_source_are_left_to_the_text_chunker() -> None:
    assert find_declarations("a.py", "def f(): pass\n" * 80_000) == ()
    assert find_declarations("a.js", "function f() {}" * 3_000) == ()


@pytest.mark.parametrize("path", ["a.js", "a.rs", "a.c", "a.py", "A.java"])
def test_blocks_inside_blocks_without_end_do_not_exhaust_the_stack(path: str) -> None:
    find_declarations(path, "{\n" * 5_000)
    find_declarations(path, "mod a {\n" * 2_000)
    find_declarations(path, "".join(" " * i + "if a:\n" for i in range(400)))


def test_a_missing_grammar_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_python", None)
    with pytest.raises(GrammarError) as caught:
        find_declarations("a.py", PYTHON)
    assert caught.value.message == "Python files are cut as plain text: package 'tree-sitter-python' is not installed"
    assert caught.value.hint == "pip install tree-sitter-python"


def test_chunks_begin_and_end_where_declarations_do_and_carry_the_qualified_name() -> None:
    body = "".join(f"        step_{i}(value)\n" for i in range(6))
    head = f"import os\n\nclass Store:\n    '''{'Sells. ' * 20}'''\n\n"
    text = f"{head}    def open(self):\n{body}\n    def close(self):\n{body}\n"
    assert [(chunk.heading_path, chunk.text.split("\n")[0]) for chunk in split("a.py", text)] == [
        ((), "import os"),
        (("class Store",), "class Store:"),
        (("class Store", "def open"), "def open(self):"),
        (("class Store", "def close"), "def close(self):"),
    ]


def test_loose_statements_after_a_small_function_share_its_chunk_and_name() -> None:
    text = "import os\n\ndef main(): os.abort()\n\nmain()\n"
    chunks = [(chunk.heading_path, chunk.text) for chunk in split("a.py", text)]
    assert chunks == [((), "import os"), (("def main",), "def main(): os.abort()\n\nmain()")]


def test_a_class_that_fits_is_one_chunk() -> None:
    text = "class Store:\n    def open(self):\n        unlock(self.door, self.key)\n" + "        x = 1\n" * 5
    (chunk,) = split("a.py", text)
    assert chunk.heading_path == ("class Store",)


def test_small_neighbours_share_a_chunk_under_their_common_name() -> None:
    members = "".join(f"    def m{i}(self): return {i}\n" for i in range(12))
    chunks = split("a.py", f"class Store:\n{members}")
    assert len(chunks) < 12
    methods = {("class Store", f"def m{i}") for i in range(12)}
    assert {chunk.heading_path for chunk in chunks} <= {("class Store",)} | methods


def test_a_long_function_is_cut_at_lines_and_keeps_its_name() -> None:
    text = "def work():\n" + "".join(f"    value_{i} = compute({i}, 'a. b')\n\n" for i in range(40))
    chunks = split("a.py", text)
    assert len(chunks) > 3
    assert {chunk.heading_path for chunk in chunks} == {("def work",)}
    assert all(chunk.text.startswith(("def", "value_")) for chunk in chunks)


LINES = "def f(x):\n|    return x\n|class C:\n|    def m(self):\n|        pass\n|@d\n|# c\n|\n|((\n|'''|\0|ä🎉\n|  "
pieces = st.sampled_from(LINES.split("|"))


@given(st.lists(pieces, max_size=40).map("".join), st.sampled_from(["a.py", "a.ts", "a.go", "a.rs", "a.c"]))
@settings(max_examples=200)
def test_any_source_is_covered_within_the_budget_in_order(text: str, path: str) -> None:
    declarations = find_declarations(path, text)
    check_nesting(declarations, 0, len(text))
    starts = regex_token_starts(text)
    chunks = split_code(text, declarations, starts, 20, 4)
    covered: set[int] = set()
    for chunk in chunks:
        assert chunk.text == text[chunk.start : chunk.end] == chunk.text.strip()
        assert sum(chunk.start <= start < chunk.end for start in starts) <= 20
        covered.update(range(chunk.start, chunk.end))
    assert all(i in covered for i, character in enumerate(text) if not character.isspace())
    assert [chunk.start for chunk in chunks] == sorted(chunk.start for chunk in chunks)


def check_nesting(declarations: Sequence[Declaration], start: int, end: int) -> None:
    for one in declarations:
        assert start <= one.start < one.end <= end
        check_nesting(one.children, one.start, one.end)
        start = one.end
