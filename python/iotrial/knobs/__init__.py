"""All knobs by subsystem: values, scope, neutral value, safety, and how each is read, set and put back."""
