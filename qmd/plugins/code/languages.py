"""Tree-sitter node types of declarations in each programming language."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from qmd.file_names import suffix_of


class Language(Struct, frozen=True):
    """One grammar and its node types that matter here."""

    name: str
    package: str
    """Distribution on the package index."""
    kinds: Mapping[str, str]
    """Node type of a declaration → keyword before its name, empty for none."""
    bodies: frozenset[str]
    """Node types that are searched for further declarations."""
    function: str = "language"
    """Function of the module that returns the grammar."""
    callables: frozenset[str] = frozenset()
    """Kinds that are searched only when long: a short function is never cut."""
    wrappers: frozenset[str] = frozenset()
    """Node types that wrap a declaration and belong to it: `export`, decorators, template parameters."""
    leading: frozenset[str] = frozenset({"comment"})
    """Node types before a declaration that belong to it if no blank line parts them."""
    is_extra: bool = False
    """Whether only the extra `code` installs the grammar."""

    @property
    def module(self) -> str:
        """The module of the grammar."""
        return self.package.replace("-", "_")


_PYTHON = Language(
    name="Python",
    package="tree-sitter-python",
    kinds={"class_definition": "class", "function_definition": "def"},
    bodies=frozenset(
        {"block", "if_statement", "else_clause", "elif_clause", "try_statement", "except_clause", "finally_clause"}
        | {"with_statement"}
    ),
    callables=frozenset({"function_definition"}),
    wrappers=frozenset({"decorated_definition"}),
)

_JAVASCRIPT = Language(
    name="JavaScript",
    package="tree-sitter-javascript",
    kinds={
        "class_declaration": "class",
        "class": "class",
        "function_declaration": "function",
        "generator_function_declaration": "function",
        "function_expression": "function",
        "arrow_function": "function",
        "method_definition": "",
        "lexical_declaration": "",
        "variable_declaration": "",
        "assignment_expression": "",
        "field_definition": "",
    },
    bodies=frozenset({"class_body", "statement_block"}),
    callables=frozenset(
        {"function_declaration", "generator_function_declaration", "function_expression", "arrow_function"}
        | {"method_definition"}
    ),
    wrappers=frozenset({"export_statement", "expression_statement"}),
    leading=frozenset({"comment", "decorator"}),
)

_TS_KINDS = {
    **_JAVASCRIPT.kinds,
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "type_alias_declaration": "type",
    "enum_declaration": "enum",
    "internal_module": "namespace",
    "module": "module",
    "function_signature": "function",
    "abstract_method_signature": "",
    "public_field_definition": "",
}
_TYPESCRIPT = replace(
    _JAVASCRIPT,
    name="TypeScript",
    package="tree-sitter-typescript",
    function="language_typescript",
    kinds=_TS_KINDS,
    wrappers=_JAVASCRIPT.wrappers | {"ambient_declaration"},
)
_TSX = replace(_TYPESCRIPT, name="TSX", function="language_tsx")

_GO = Language(
    name="Go",
    package="tree-sitter-go",
    kinds={"function_declaration": "func", "method_declaration": "func", "type_declaration": "type"},
    bodies=frozenset(),
)

_RUST = Language(
    name="Rust",
    package="tree-sitter-rust",
    kinds={
        "function_item": "fn",
        "function_signature_item": "fn",
        "struct_item": "struct",
        "enum_item": "enum",
        "union_item": "union",
        "trait_item": "trait",
        "impl_item": "impl",
        "mod_item": "mod",
        "type_item": "type",
        "macro_definition": "macro_rules!",
    },
    bodies=frozenset({"declaration_list"}),
    leading=frozenset({"line_comment", "block_comment", "attribute_item"}),
)

_JAVA = Language(
    name="Java",
    package="tree-sitter-java",
    kinds={
        "class_declaration": "class",
        "interface_declaration": "interface",
        "enum_declaration": "enum",
        "record_declaration": "record",
        "annotation_type_declaration": "@interface",
        "method_declaration": "",
        "constructor_declaration": "",
    },
    bodies=frozenset({"class_body", "interface_body", "enum_body", "enum_body_declarations"}),
    leading=frozenset({"line_comment", "block_comment"}),
)

_C = Language(
    name="C",
    package="tree-sitter-c",
    kinds={
        "function_definition": "",
        "struct_specifier": "struct",
        "union_specifier": "union",
        "enum_specifier": "enum",
        "type_definition": "typedef",
        "preproc_function_def": "#define",
    },
    bodies=frozenset(
        {"preproc_ifdef", "preproc_if", "preproc_else", "preproc_elif", "linkage_specification", "declaration_list"}
    ),
)
CPP = Language(
    name="C++",
    package="tree-sitter-cpp",
    kinds={**_C.kinds, "class_specifier": "class", "namespace_definition": "namespace"},
    bodies=_C.bodies | {"field_declaration_list"},
    wrappers=frozenset({"template_declaration"}),
    is_extra=True,
)

_C_SHARP = Language(
    name="C#",
    package="tree-sitter-c-sharp",
    kinds={
        "namespace_declaration": "namespace",
        "class_declaration": "class",
        "interface_declaration": "interface",
        "struct_declaration": "struct",
        "record_declaration": "record",
        "enum_declaration": "enum",
        "method_declaration": "",
        "constructor_declaration": "",
        "property_declaration": "",
    },
    bodies=frozenset({"declaration_list"}),
    is_extra=True,
)

_RUBY = Language(
    name="Ruby",
    package="tree-sitter-ruby",
    kinds={"module": "module", "class": "class", "method": "def", "singleton_method": "def"},
    bodies=frozenset({"body_statement"}),
    callables=frozenset({"method", "singleton_method"}),
    is_extra=True,
)

_PHP = Language(
    name="PHP",
    package="tree-sitter-php",
    function="language_php",
    kinds={
        "class_declaration": "class",
        "interface_declaration": "interface",
        "trait_declaration": "trait",
        "enum_declaration": "enum",
        "function_definition": "function",
        "method_declaration": "function",
    },
    bodies=frozenset({"declaration_list", "enum_declaration_list", "namespace_definition"}),
    is_extra=True,
)

_BASH = Language(
    name="Bash",
    package="tree-sitter-bash",
    kinds={"function_definition": "function"},
    bodies=frozenset({"if_statement"}),
    is_extra=True,
)

_SUFFIXES: tuple[tuple[Language, tuple[str, ...]], ...] = (
    (_PYTHON, (".py", ".pyi", ".pyw")),
    (_TYPESCRIPT, (".ts", ".mts", ".cts")),
    (_TSX, (".tsx",)),
    # The JavaScript grammar reads JSX.
    (_JAVASCRIPT, (".js", ".mjs", ".cjs", ".jsx")),
    (_GO, (".go",)),
    (_RUST, (".rs",)),
    (_JAVA, (".java",)),
    (_C, (".c", ".h")),
    (CPP, (".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx")),
    (_C_SHARP, (".cs",)),
    (_RUBY, (".rb",)),
    (_PHP, (".php",)),
    (_BASH, (".sh", ".bash")),
)
_BY_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES for suffix in suffixes}


def language_of(path: str) -> Language | None:
    """Return the programming language of a file by its suffix; None for prose and unknown ones."""
    return _BY_SUFFIX.get(suffix_of(path))


def has_grammar(path: str) -> bool:
    """Return whether the packages that read the language of a file are installed; nothing is imported."""
    from importlib.util import find_spec

    language = language_of(path)
    return language is not None and all(find_spec(name) for name in ("tree_sitter", language.module))
