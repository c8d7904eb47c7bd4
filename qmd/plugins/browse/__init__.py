"""The full-screen search: typing and clicks come in, requests to the app's index go out, and a chosen note.

It knows Textual and nothing of the command line; whoever starts it says how a note is opened.
"""
