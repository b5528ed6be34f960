// What changes is told by server-sent events; what it became is fetched by htmx, as any reader
// may see it. An event carries topics only: "queue", "cluster", "history", "forecast", "job".
(() => {
  const body = document.body;
  const light = document.querySelector(".live");
  const gone = document.getElementById("gone");
  const say = (state, text) => {
    if (!light || (light.dataset.state === state && light.textContent === text)) return;
    light.dataset.state = state;
    light.querySelector("span").textContent = text;
  };

  // What is shown is as of when the service was last heard of. Once it is not, the page says so and
  // greys its numbers; it goes on trying.
  const PATIENCE_MS = 5000;
  const SILENCE_MS = 40000; // the service says something every 15 s
  let heard = Date.now();
  let doubt = null;
  const hear = (state, text) => {
    heard = Date.now();
    clearTimeout(doubt);
    doubt = null;
    body.classList.remove("stale");
    gone.hidden = true;
    say(state, text ?? `as of ${times.clock(new Date(heard))}`);
  };
  const lost = () => {
    const at = times.short(new Date(heard));
    body.classList.add("stale");
    if (gone.hidden) {
      gone.textContent = `The service does not answer. What you see is as of ${at}, and greyed until it is back.`;
      gone.hidden = false;
    }
    say("lost", `as of ${at}`);
  };
  const suspect = () => (doubt ??= setTimeout(lost, PATIENCE_MS));

  let source = null;
  let seen = Number(body.dataset.seq || 0);
  const open = () => {
    if (!body.dataset.live || source) return;
    // A stream closed by this page is taken up where it stood; the browser does the same by
    // Last-Event-ID when the connection breaks.
    source = new EventSource(`${body.dataset.live}&after=${seen}`);
    source.onopen = () => hear("live", "live");
    source.onerror = () => {
      suspect();
      if (source?.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      close();
      polled(); // answered, but by no stream: too many, or a proxy that speaks for the service
      setTimeout(open, 15000);
    };
    source.addEventListener("hello", () => hear("live", "live"));
    source.addEventListener("changed", (event) => {
      seen = Number(event.lastEventId) || seen;
      hear("live", "live");
      for (const topic of JSON.parse(event.data).topics) htmx.trigger(body, `changed-${topic}`);
    });
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  const polled = async () => {
    const answer = await fetch(body.dataset.health, { cache: "no-store" }).catch(() => null);
    if (answer?.ok) hear("polled");
  };
  setInterval(() => {
    if (!document.hidden && source && Date.now() - heard > SILENCE_MS) {
      lost();
      close();
      open();
    }
  }, 5000);
  // A hidden tab lets go of its stream: a browser opens six connections to a host. Its job's part
  // goes on being fetched now and then.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);

  // A part that is fetched anew keeps what the reader did to it: folds, and where it was scrolled.
  // Output stays at its end, unless its reader scrolled up.
  const kept = new Map();
  const atEnd = (box) => box.scrollHeight - box.scrollTop - box.clientHeight < 8;
  const toEnd = (part) => part.querySelectorAll(".output").forEach((box) => { box.scrollTop = box.scrollHeight; });
  toEnd(body);
  body.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    kept.set(part.id, {
      folds: [...part.querySelectorAll("details[id][open]")].map((d) => d.id),
      checks: [...part.querySelectorAll("input[id]:checked")].map((box) => box.id),
      reads: [...part.querySelectorAll(".output")].filter((box) => !atEnd(box)).map((box) => box.scrollTop)[0],
      scrolls: [...part.querySelectorAll(".scroll[id]")].map((s) => [s.id, s.scrollLeft]),
    });
  });
  body.addEventListener("htmx:afterSwap", (event) => {
    const was = kept.get(event.detail.target.id);
    if (!was) return;
    const now = document.getElementById(event.detail.target.id);
    if (now && was.reads === undefined) toEnd(now);
    else now?.querySelectorAll(".output").forEach((box) => { box.scrollTop = was.reads; });
    for (const id of was.folds) document.getElementById(id)?.setAttribute("open", "");
    for (const id of was.checks) if (document.getElementById(id)) document.getElementById(id).checked = true;
    for (const [id, left] of was.scrolls) {
      const box = document.getElementById(id);
      if (box) box.scrollLeft = left;
    }
  });
  body.addEventListener("htmx:responseError", (event) => {
    if (event.detail.xhr.status === 401) location.reload(); // logged out: the page leads to the form
    if (event.detail.xhr.status >= 500) suspect();
  });
  body.addEventListener("htmx:sendError", suspect);
  body.addEventListener("htmx:afterOnLoad", (event) => {
    if (event.detail.xhr.status >= 400) return;
    if (source?.readyState === EventSource.OPEN) hear("live", "live");
    else hear("polled");
  });
  // One box selects all that belong to its form.
  document.querySelectorAll("[data-all]").forEach((all) => {
    all.closest("label").hidden = false;
    all.addEventListener("change", () => {
      for (const box of document.querySelectorAll(`td input[type=checkbox][form=${all.form.id}]`)) box.checked = all.checked;
    });
  });
  htmx.config.includeIndicatorStyles = false;
  htmx.config.allowEval = false;
})();
