"""One module a verb; each holds a click command named ``command``. A trailing underscore keeps
Python's own names free."""
