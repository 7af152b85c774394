"""One module per verb; each holds a click command named ``command``. A trailing underscore avoids Python's
own names."""
