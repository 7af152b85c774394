"""iotrial from Python: what ``import iotrial`` gives, one module a kind of value.

The names that stay are those that ``iotrial`` itself exports.
"""
