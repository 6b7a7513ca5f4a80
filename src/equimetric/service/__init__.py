"""A gallery and its model over HTTP: `equimetric serve`.

May use deployment, gallery and everything before them; needs the extra `serve`.

* `problems`    error responses: a status and one sentence
* `limits`      size, number and duration of requests
* `access`      API keys, and sites that a browser may call from
* `uploads`     decodes the bytes of an upload to pixels
* `batching`    batches concurrent calls
* `shared_gallery`  a gallery that other threads and processes may change
* `backend`     `ServedGallery`: the gallery and its verified model
* `thumbnails`  small pictures of gallery items
* `responses`   schemas of the responses
* `routes`      one function per endpoint
* `metrics`     metrics for Prometheus
* `pages`       the demo page, and the reference of the API
* `app`         the FastAPI application
* `server`      runs it until a signal stops it
"""
