"""Deploy a trained model: embed, export with its certificate, verify, and run it over many images.

May use runs, calibration and everything before them; knows nothing of training and studies.

* `preprocessing`   from an image file to the pixels that the network takes
* `network`         from pixels to embeddings, and with a cohort to search vectors
* `embedder`        `Embedder`: both together, with the certificate
* `runtimes`        PyTorch, ONNX Runtime, exported programs
* `export`          `export_run`: one folder with everything; its parts in `graphs`, `int8`, `model_card`, `canaries`
* `certification`   the certificate, bound to the model that it is for
* `folder`          read an exported folder, with checks of its files
* `load`            `equimetric.load`
* `verify`          whether this machine reproduces the exported outputs
* `bulk`            embeddings of many files, resumable
"""
