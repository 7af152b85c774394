"""The Python API: what ``import iotrial`` provides, one module per kind of value.

The stable names are those exported by ``iotrial`` itself.
"""
