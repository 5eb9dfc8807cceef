"""Export a run to ONNX, sentence-transformers or transformers."""
