// What changes is told by server-sent events; what it became is fetched by htmx, as any reader
// may see it. An event carries topics only: "queue", "cluster", "history", "forecast", "job".
(() => {
  const body = document.body;
  const light = document.querySelector(".live");
  const say = (state, text) => {
    if (!light || light.dataset.state === state) return;
    light.dataset.state = state;
    light.querySelector("span").textContent = text;
  };

  let source = null;
  let seen = Number(body.dataset.seq || 0);
  const open = () => {
    if (!body.dataset.live || source) return;
    // A stream closed by this page is taken up where it stood; the browser does the same by
    // Last-Event-ID when the connection breaks.
    source = new EventSource(`${body.dataset.live}&after=${seen}`);
    source.onopen = () => say("live", "live");
    source.onerror = () => {
      say("lost", "connecting again");
      if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      close();
      setTimeout(open, 15000);
    };
    source.addEventListener("changed", (event) => {
      seen = Number(event.lastEventId) || seen;
      say("live", "live");
      for (const topic of JSON.parse(event.data).topics) htmx.trigger(body, `changed-${topic}`);
    });
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  // A part that is fetched anew keeps what the reader did to it: folds, and where it was scrolled.
  const kept = new Map();
  body.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    kept.set(part.id, {
      folds: [...part.querySelectorAll("details[id][open]")].map((d) => d.id),
      scrolls: [...part.querySelectorAll(".scroll[id]")].map((s) => [s.id, s.scrollLeft]),
    });
  });
  body.addEventListener("htmx:afterSwap", (event) => {
    const was = kept.get(event.detail.target.id);
    if (!was) return;
    for (const id of was.folds) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, left] of was.scrolls) {
      const box = document.getElementById(id);
      if (box) box.scrollLeft = left;
    }
  });
  body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) location.reload(); // logged out: the page leads to the form
  });
  htmx.config.includeIndicatorStyles = false;
  htmx.config.allowEval = false;
})();
