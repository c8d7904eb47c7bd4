"""Keys of the screen. A tooltip contains the names of a key and, after two blanks, its action."""

from textual.binding import Binding

_SHOWN = (
    ("enter", "choose", "Open", "Enter  open the note at the passage"),
    ("right", "passages", "Passages", "Right  list the lines of the note that match"),
    ("tab", "connected", "Related", "Tab  links from and to the note, related notes"),
    ("ctrl+f", "filters", "Filter", "Ctrl+F  saved searches, and filters with counts"),
    ("ctrl+y", "copy", "Copy link", "Ctrl+Y  copy the link of the note; in the list, y"),
    ("ctrl+o", "preview", "Preview", "Ctrl+O  hide or show the preview"),
    ("f1,question_mark", "help", "Help", "F1, ?  these keys; ? where nothing is typed, or in the list"),
    ("escape", "leave", "Back", "Esc  go back; from the first list, quit"),
    ("ctrl+n,ctrl+j", "move(1)", "", "Ctrl+N, Ctrl+J  the next note, while you type"),
    ("ctrl+p,ctrl+k", "move(-1)", "", "Ctrl+P, Ctrl+K  the note before, while you type"),
    ("pagedown,shift+down", "page(1)", "", "PageDown, PageUp  scroll the preview"),
    ("pageup,shift+up", "page(-1)", "", ""),
    ("ctrl+t", "light", "", "Ctrl+T  switch between light and dark"),
    ("ctrl+c,ctrl+d", "quit", "", ""),  # `script` sends Ctrl+D at the end of its input
)
KEYS = (
    *(Binding(keys, do, name, show=bool(name), priority=True, tooltip=tooltip) for keys, do, name, tooltip in _SHOWN),
    Binding("down", "down", show=False, tooltip="Down, Up  choose a note; letters still change the question"),
    Binding("y", "copy", show=False),
)
