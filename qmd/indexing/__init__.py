"""Collections come in; an index that equals the files on disk, with vectors for every text, goes out.

This is the whole write path: `update.update_collection` for documents and terms, `embed.embed_pending` for vectors,
both resumable. It must not know SQL, a model's inside, or how results are searched.
"""
