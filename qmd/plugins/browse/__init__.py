"""Full-screen search: keys and clicks come in, requests to the app's index and a chosen note go out.

It knows Textual but not the command line; its caller provides the function that opens a note.
"""
