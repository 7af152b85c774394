"""Parts of ``iotrial fleet``: one module each, which holds one ``command``."""
