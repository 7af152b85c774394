"""The declarations of all knobs: values, scope, neutral value and safety. They need no lab."""
