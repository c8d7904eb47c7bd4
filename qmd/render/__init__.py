"""Records as the text a person or a program reads.

Comes in: responses, documents, status records and display options. Goes out: strings, complete with their last newline.
Must not know of the index, files, models, or where the text is written.
"""
