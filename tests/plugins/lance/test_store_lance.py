"""What is said of a place that LanceDB cannot use."""

from __future__ import annotations

import pytest

pytest.importorskip("lancedb", reason="LanceDB has no wheel for this system")

from qmd.plugins.lance.tables import reason_and_hint


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        (
            'Invalid input, Failed to connect: IO { source: "Failed to get AWS credentials: CredentialsNotLoaded('
            '{ source: Some(\\"no providers in chain\\") })", location: Location { file: "/x/lance/aws.rs" } }',
            "there are no credentials for it",
            "AWS_ACCESS_KEY_ID",
        ),
        (
            "lance error: LanceError(IO): Generic S3 error: Failed to resolve region for bucket 'b', /x/aws.rs:319:13",
            "the region of its bucket is not known, or there is no such bucket",
            "AWS_REGION",
        ),
        (
            "S3 error: <Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message>, /x.rs:1",
            "The specified bucket does not exist",
            "can be reached",
        ),
        ("lance error: LanceError(IO): No space left on device, /x/io.rs:31:2", "No space left on device", "reached"),
    ],
)
def test_a_place_that_cannot_be_used_is_told_without_the_librarys_source(text: str, reason: str, hint: str) -> None:
    assert reason_and_hint(text)[0] == reason
    assert hint in reason_and_hint(text)[1]
