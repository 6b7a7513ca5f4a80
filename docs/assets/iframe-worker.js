/* Browsers start no workers for pages that are read from the disk. There, a hidden frame does the work of one. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      const inner = this.frame.contentWindow
      inner.document.open()
      inner.document.write("<html><body></body></html>")
      inner.document.close()
      inner.postMessage = data => {
        const event = new MessageEvent("message", { data })
        this.dispatchEvent(event)
        if (this.onmessage) this.onmessage(event)
      }
      inner.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
      this.ready = this.load(url)
    }
    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        script.src = new URL(url, document.baseURI).href
        script.onload = resolve
        script.onerror = reject
        this.frame.contentDocument.body.appendChild(script)
      })
    }
    postMessage(data) {
      const inner = this.frame.contentWindow
      this.ready.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
