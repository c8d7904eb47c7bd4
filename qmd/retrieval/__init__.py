"""Retrieval: a query, an open index and loaded engines in; ranked hits with calibrated relevance and passages out.

`pipeline.search` is the read path; `lookup` finds single documents by docid, URI, path or pattern, and their contexts.
It must not know SQL, model files, terminals or protocols.
"""
