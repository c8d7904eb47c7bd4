"""Sample files of each kind, and ways to make them unusual."""

import io
from base64 import b85decode
from collections.abc import Mapping, Sequence
from zipfile import ZIP_DEFLATED, ZipFile
from zlib import decompress

import openpyxl
from pptx import Presentation
from pptx.util import Inches

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"

PROTECTED_PDF = decompress(
    b85decode(
        b"c-oCp%Wl*_5WLS<^kt7^-Y?1814&jwfU<G|7nDQK!^@(T9eHP^grDTVAHa_=HV`b91J>B`R9AKPRL^RAwRyoWBw2m?{^cv-z+ecUNYfCy9fx"
        b"#^d4$FqlRDFB<<?}qCb>@&M=ZE^PY)UB7I*nb=;d(g3vfbT@6!=JfU3k6?iW&dCcVUhhhay4=71@8yAY^<)*`gc$Kf=_s;H4lr*CuG<ICZ(mSq"
        b"=geyy0+{gislwXwf*>qYMOQ`;>FLf_<mS3ZJbRR>CV<&71-1~&Ucsix4|f_=g<5qblS=PcWxtrLtp&y)*}GYrW}rHnM45P=8dw1~pX7@gLUMHU"
        b"n@7*QEfJAVg_aL#5gH8Vj=X|mNZ1~f?rFR^}<wwiM%9O~qKtoy_`8Wb6wa+sIXc^q>`7#PByA23==4IMmVyq<lI^nWnz&#+qa95eO|6H9Fwaev"
        b"6;Z0qg*bFQt>b{GoC*?;<~?*`z%{;%r18swpyPHt5aRw>LO@ySM%%Ij*~`hO^O&ewe$pB@V6--A9D9LsEovh}8~u5UKv2X=MAAp"
    )
)


def pdf(pages: Sequence[str], title: str = "", *, kids: str = "", with_table: bool = True) -> bytes:
    """Make a PDF of a font and pages of lines; `kids` replaces the list of its pages."""
    parts = ["<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    top = 2 + 2 * len(pages)
    for page in pages:
        text = "BT /F 12 Tf 14 TL 40 800 Td " + "".join(f"({line}) Tj T* " for line in page.split("\n")) + "ET"
        parts += [f"<< /Length {len(text)} >>\nstream\n{text}\nendstream"]
        place = f"/Parent {top} 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F 1 0 R >> >>"
        parts += [f"<< /Type /Page {place} /Contents {len(parts)} 0 R >>"]
    kids = kids or " ".join(f"{number} 0 R" for number in range(3, top, 2))
    parts += [f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>", f"<< /Type /Catalog /Pages {top} 0 R >>"]
    parts += [f"<< /Title ({title}) >>"]
    made, offsets = "%PDF-1.4\n", list[int]()
    for number, part in enumerate(parts, 1):
        offsets.append(len(made))
        made += f"{number} 0 obj\n{part}\nendobj\n"
    table = f"xref\n0 {top + 3}\n0000000000 65535 f \n" + "".join(f"{at:010} 00000 n \n" for at in offsets)
    end = f"trailer << /Size {top + 3} /Root {top + 1} 0 R /Info {top + 2} 0 R >>\nstartxref\n{len(made)}\n%%EOF"
    return (made + table * with_table + end).encode("latin-1")


def packed(parts: Mapping[str, bytes | str], base: bytes = b"") -> bytes:
    """Make a ZIP archive: that of `base` with other `parts`."""
    made = io.BytesIO()
    with ZipFile(made, "w", ZIP_DEFLATED) as archive:
        for name in ZipFile(io.BytesIO(base)).namelist() if base else ():
            if name not in parts:
                archive.writestr(name, ZipFile(io.BytesIO(base)).read(name))
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


def docx(body: str, doctype: str = "") -> bytes:
    """Make a Word file; `h1:` makes a paragraph a heading."""
    style = '<w:pPr><w:pStyle w:val="Heading1"/></w:pPr>'
    paragraphs = "".join(
        f"<w:p>{style if line.startswith('h1:') else ''}<w:r><w:t>{line.removeprefix('h1:')}</w:t></w:r></w:p>"
        for line in body.split("\n")
    )
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    styles = '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>'
    return packed(
        {
            "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Override PartName="/word/document.xml"'
            f' ContentType="{main}"/></Types>',
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r" Type="{_OFFICE}"'
            ' Target="word/document.xml"/></Relationships>',
            "word/styles.xml": f'<w:styles xmlns:w="{_WORD}">{styles}</w:styles>',
            "word/document.xml": f'<?xml version="1.0"?>{doctype}<w:document xmlns:w="{_WORD}"><w:body>{paragraphs}'
            "</w:body></w:document>",
        }
    )


def pptx() -> bytes:
    """Make two slides: a title with words and notes, and a table in a group's place."""
    deck = Presentation()
    one = deck.slides.add_slide(deck.slide_layouts[1])
    one.shapes.title.text, one.placeholders[1].text = "Rye & <oats>", "Flour *rises*\n# no heading"
    one.notes_slide.notes_text_frame.text = "Say it slowly"
    two = deck.slides.add_slide(deck.slide_layouts[6])
    table = two.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for number, words in enumerate(("Bread", "Heat", "Rye|dark", "230")):
        table.cell(number // 2, number % 2).text = words
    inner = two.shapes.add_group_shape().shapes.add_textbox(Inches(1), Inches(3), Inches(2), Inches(1))
    inner.text_frame.text = "Within a group"
    made = io.BytesIO()
    deck.save(made)
    return made.getvalue()


def xlsx(rows: Sequence[Sequence[object]], name: str = "Sales", hidden: str = "unseen") -> bytes:
    """Make a sheet of rows, and a hidden one."""
    book = openpyxl.Workbook()
    book.active.title = name
    for row in rows:
        book.active.append(list(row))
    book.create_sheet("Hidden").append([hidden])
    book["Hidden"].sheet_state = "hidden"
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()
