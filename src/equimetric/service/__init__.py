"""A gallery and its model over HTTP: `equimetric serve`.

May use deployment, gallery and everything before them; needs the extra `serve`.

* `problems`    what a request is refused with: a status and one sentence
* `limits`      how large, how many and how slow requests may be
* `access`      API keys, and which sites a browser may call from
* `uploads`     from the bytes of an upload to pixels, or the reason why not
* `batching`    concurrent calls, computed together
* `shared_gallery`  a gallery that other threads and processes change
* `backend`     `ServedGallery`: the gallery and its verified model
* `thumbnails`  small pictures of gallery items
* `answers`     what responses look like
* `routes`      one function per endpoint
* `metrics`     what Prometheus reads
* `pages`       the page to try it, and the reference of the API
* `app`         all of it as one application
* `server`      runs it until it is told to stop
"""
