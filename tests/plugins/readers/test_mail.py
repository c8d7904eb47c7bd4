"""Mails: their text, and mails made to break a reader."""

import pytest

from qmd.records import Document
from tests.parsing import parse_document

MAIL = """Received: from a (b)\r
Subject: =?utf-8?q?Br=C3=B6tchen?= *today*\r
 and tomorrow\r
From: "Ana" <ana@example.org>\r
To: Bo <bo@example.org>, Cy\r
Date: Fri, 1 Mar 2024 09:05:00 +0100\r
Content-Type: multipart/mixed; boundary="x y"\r
\r
This is a mail of many parts.\r
--x y\r
Content-Type: multipart/alternative;\r
\tboundary=x\r
\r
--x\r
Content-Type: text/plain; charset=iso-8859-1\r
Content-Transfer-Encoding: quoted-printable\r
\r
Br=F6tchen at =\r
eight.\r
\r
> again?\r
--x\r
Content-Type: text/html\r
\r
<p>Unseen\r
--x--\r
unsaid\r
--x y\r
Content-Type: text/html; charset=utf-8\r
Content-Transfer-Encoding: base64\r
\r
PHA+PGI+SGVhdDwvYj4gJmFtcDsgc3RlYW08c2NyaXB0PmhpZGRlbg==\r
--x y\r
Content-Type: application/pdf; name="old.pdf"\r
Content-Disposition: attachment; filename*=utf-8''Br%C3%B6tchen%20%5B1%5D.pdf\r
\r
JVBERi0=\r
--x y\r
Content-Type: message/rfc822; name=b.eml\r
\r
Subject: Inner\r
From: Cy\r
\r
Old text\r
--x y--\r
epilogue\r
"""


def mail(text: str) -> Document:
    return parse_document("a.eml", text.encode("utf-8", "surrogateescape"))


def test_a_mail_is_its_text_with_its_subject_as_title() -> None:
    document = mail(MAIL)
    assert document.text == (
        '---\ntitle: "Brötchen \\\\*today\\\\* and tomorrow"\nfrom: "\\"Ana\\" <ana@example.org>"\n'
        'to: "Bo <bo@example.org>, Cy"\ndate: "2024-03-01 09:05"\n---\n\n'
        "Brötchen at eight.\n\n> again?\n\nHeat & steam\n\n**Inner**\n\nOld text\n\n"
        "Attached: Brötchen \\[1].pdf\n"
    )
    assert (document.title, document.date, document.warnings) == ("Brötchen *today* and tomorrow", "2024-03-01", ())
    assert document.metadata["from"] == '"Ana" <ana@example.org>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Subject: A\n\nplain\n", '---\ntitle: "A"\n---\n\nplain\n'),
        ("Subject: Größe\nDate: when\n\nx", '---\ntitle: "Größe"\ndate: "when"\n---\n\nx\n'),
        ("Content-Type: text/html\n\n<h1>Hi", "# Hi\n"),
        ("Content-Type: multipart/mixed\n\n--\nx", ""),
        ("Content-Type: multipart/mixed; boundary=b\n\nx", ""),
        ("Content-Type: multipart/mixed; boundary=b\n\n--b\n\nopen", "open\n"),
        ("Content-Type: multipart/alternative; boundary=b\n\n--b\n\n \n--b\nContent-Type: text/html\n\n<p>x", "x\n"),
        ("Content-Type: image/png; name=../../etc/x.png\n\n\0\1", "Attached: ../../etc/x.png\n"),
        ("Content-Type: text/plain; charset=punycode\n\nBrötchen", "Brötchen\n"),
        ("Content-Transfer-Encoding: base64\n\n!!x", "!!x\n"),
        ("Subject: =?x?b?!?= =?rot13?q?a?=\n\n", '---\ntitle: "=?x?b?!?= =?rot13?q?a?="\n---\n'),
        ("Date: Fri, 99 Mar 99999999999999999999 09:05:00\n\n", None),
        ("no mail at all\n\nx", "x\n"),
        ("", ""),
    ],
)
def test_what_is_damaged_is_read_as_far_as_it_goes(text: str, said: str | None) -> None:
    assert said in (None, mail(text).text)


def test_parts_within_parts_are_read_to_a_depth() -> None:
    nested = "".join(f"Content-Type: multipart/mixed; boundary=b{i}\n\n--b{i}\n" for i in range(5_000))
    document = mail(nested + "\nx")
    line = "skipped parts that are nested too deeply or follow too many others"
    assert (document.text, document.warnings) == ("", (line,))
    mails = "Subject: s\nContent-Type: message/rfc822\n\n" * 5_000
    assert mail(mails).warnings == ("skipped parts that are nested too deeply or follow too many others",)


def test_a_mail_of_very_many_parts_is_read_to_a_bound() -> None:
    inner = "Content-Type: multipart/mixed; boundary=c\n\n" + "\n--c\n\nx" * 400
    document = mail("Content-Type: multipart/mixed; boundary=b\n\n" + f"\n--b\n{inner}" * 300)
    assert document.text.count("x") < 1_000
    assert document.warnings == ("skipped parts that are nested too deeply or follow too many others",)
