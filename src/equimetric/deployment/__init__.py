"""A trained model outside: embedded, exported with its certificate, verified, and run over many images.

May use runs, calibration and everything before them; knows nothing of training and studies.

* `preprocessing`   from an image file to the pixels that the network takes
* `network`         from pixels to embeddings, and with a cohort to the vectors to search by
* `embedder`        `Embedder`: both together, with the certificate
* `runtimes`        PyTorch, ONNX Runtime, exported programs
* `export`          `export_run`: one folder with everything; its parts in `graphs`, `int8`, `model_card`, `canaries`
* `certification`   the certificate, bound to the model that it is for
* `folder`          what is read back, and refused where anything differs
* `load`            `equimetric.load`
* `verify`          whether this machine computes what was certified
* `bulk`            embeddings of many files, resumable
"""
