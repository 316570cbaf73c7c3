"""Neural scorers: architectures, layers, saved models and ONNX export.

Internal: import public names from `twinrank`.
"""
