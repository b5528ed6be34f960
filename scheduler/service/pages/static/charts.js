// Draws every [data-chart] with plotly, in the colours of the style sheet. A chart's numbers also
// stand in a table beside it.
(() => {
  const named = (css, value) =>
    typeof value === "string" && value.startsWith("--") ? css.getPropertyValue(value).trim() : value;
  const coloured = (css, value) => {
    if (Array.isArray(value)) return value.map((v) => coloured(css, v));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(css, v)]));
    return named(css, value);
  };
  const draw = (box, given) => {
    const css = getComputedStyle(document.documentElement);
    const spec = given ?? JSON.parse(box.querySelector("script[type='application/json']").textContent);
    const plot = box.querySelector(".plot");
    const colour = (name) => css.getPropertyValue(name).trim();
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--muted"), linecolor: colour("--line"), automargin: true };
    const layout = coloured(css, spec.layout);
    const axes = Object.fromEntries(
      Object.entries({ xaxis: {}, yaxis: {}, ...layout })
        .filter(([k]) => /^[xy]axis/.test(k))
        .map(([k, v]) => [k, { ...axis, ...v }]),
    );
    Plotly.react(plot, coloured(css, spec.data), {
      margin: { l: 48, r: 12, t: 10, b: 40 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("--muted") },
      legend: { orientation: "h", y: 1.12, x: 0 },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--fg") } },
      ...layout,
      ...axes,
    }, { responsive: true, displayModeBar: false });
  };
  window.drawChart = draw; // for pages whose scripts make the spec themselves
  const all = (root) => root.querySelectorAll("[data-chart]").forEach((box) => draw(box));
  all(document);
  document.body.addEventListener("htmx:afterSettle", (event) => all(event.detail.target));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => all(document));
})();
