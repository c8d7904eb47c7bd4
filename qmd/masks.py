"""Masks of collections that no user has written: globs as `index.yml` contains them."""

DEFAULT_PATTERN = "**/*.{md,markdown,mdx,mdown,mkd,Rmd,qmd}"
PROSE_BUT_HTML = (
    "**/*.{md,markdown,mdx,mdown,mkd,mkdn,mdwn,Rmd,qmd,mdc,livemd,org,rst,rest,txt,text,ipynb,canvas,eml,epub,srt,vtt"
    ",pdf,docx,pptx}"
)
PROSE = PROSE_BUT_HTML.replace("}", ",html,htm,xhtml}")
CODE = "**/*.{py,pyi,pyw,ts,mts,cts,tsx,js,mjs,cjs,jsx,go,rs,java,c,h,cc,cpp,cxx,hh,hpp,hxx,cs,rb,php,sh,bash}"
HISTORY = "**/*.jsonl,!**/subagents/**"
"""Sessions of an agent, see `qmd.plugins.histories`; a collection of them has it unless the user gives another."""
OWN_PATTERNS = (DEFAULT_PATTERN, PROSE, PROSE_BUT_HTML, CODE)
"""Masks of new collections; only they match endings in any letter case. `qmd index` chooses one of the last three."""

NAMES = {PROSE: "all prose", PROSE_BUT_HTML: "all prose but HTML", CODE: "source code", HISTORY: "sessions of an agent"}
"""Mask → its name in texts for people and agents; programs get the mask itself."""

UNWRITTEN_PATTERN = "**/*.md"
"""Mask of a collection whose entry in a configuration file has none."""
