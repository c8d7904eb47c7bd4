"""A query, an open index and the loaded engines come in; ranked hits with calibrated relevance and passages go out.

`pipeline.search` is the read path; `lookup` finds single documents by docid, URI, path or pattern, and the user's notes
that apply to them. It must not know SQL, model files, terminals or protocols.
"""
