// Draws the Vega-Lite specifications in a page: the JSON within every [data-chart]; others by
// drawChart(box, specification). Colours are those of the style sheet.
(() => {
  const font = "system-ui, sans-serif"; // by name, since it is measured
  const text = { labelColor: "var(--muted)", titleColor: "var(--muted)", labelFontSize: 12, titleFontSize: 12, labelFont: font, titleFont: font, titleFontWeight: "normal" };
  const room = "(0 * width + containerSize()[0])"; // is asked again when the width changes
  const look = {
    background: "transparent",
    padding: { left: 2, right: 14, top: 6, bottom: 4 },
    view: { stroke: null },
    axis: { ...text, gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)", labelOverlap: "greedy", labelSeparation: 6, labelLimit: { signal: `max(140, 0.42 * ${room})` }, labelPadding: 5, titlePadding: 6 },
    legend: { ...text, labelColor: "var(--fg)", orient: "top", title: null, labelLimit: 220, symbolSize: 120, symbolStrokeWidth: 2.5, columns: { signal: `max(1, floor(${room} / 140))` } },
    text: { font, fontSize: 12, fill: "var(--muted)" },
  };
  const tell = (plot, tip) => (_, event, item, value) => {
    tip.hidden = !value;
    if (!value) return;
    tip.textContent = value;
    const room = plot.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX - room.left + 12, room.width - tip.offsetWidth))}px`;
    tip.style.top = `${event.clientY - room.top + 14}px`;
  };
  const draw = (box, given) => {
    const plot = box.querySelector(".plot");
    const spec = given ?? JSON.parse(box.querySelector("script[type='application/json']").textContent);
    const drawing = Object.assign(document.createElement("div"), { className: "drawing", ariaHidden: "true" });
    const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    plot.view?.finalize();
    plot.replaceChildren(drawing, tip);
    const height = Math.max(spec.height ?? 0, parseFloat(getComputedStyle(plot).minHeight) || 240);
    const { spec: compiled } = vega.compile({ ...spec, width: "container", height, autosize: { type: "fit", contains: "padding" } }, { config: look });
    const parsed = vega.parse(compiled, null, { ast: true }); // is interpreted: a page allows no eval
    plot.view = new vega.View(parsed, { expr: vega.expressionInterpreter, renderer: "svg", container: drawing, tooltip: tell(plot, tip) });
    plot.view.run();
    return plot.view;
  };
  window.drawChart = draw;
  const all = (root) => root.querySelectorAll("[data-chart]").forEach((box) => draw(box));
  all(document);
  document.body.addEventListener("htmx:afterSettle", (event) => all(event.detail.target));
  let later = 0; // in a fold that is closed a chart has no width
  const resized = () => dispatchEvent(new Event("resize"));
  document.addEventListener("toggle", () => { cancelAnimationFrame(later); later = requestAnimationFrame(resized); }, true);
})();
