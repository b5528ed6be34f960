// The parts of a shape are dragged: each is a slider. What is dragged becomes the change asked for,
// and is said beside it as the factor that it is.
(() => {
  const shape = document.querySelector("[data-shape]");
  const said = shape?.querySelector("output");
  const change = document.querySelector("select[name=kind]");
  const word = (slider) => `×${Number(Math.exp(slider.value).toPrecision(3))}`;
  const tell = (slider) => {
    slider.setAttribute("aria-valuetext", word(slider));
    said.textContent = `${slider.getAttribute("aria-label")}: ${word(slider)}`;
  };
  shape?.addEventListener("input", ({ target }) => {
    change.value = "draw";
    target.classList.toggle("moved", target.value !== target.dataset.score);
    tell(target);
  });
  shape?.addEventListener("focusin", ({ target }) => target.type === "range" && tell(target));
  // Escape takes a part back to where it is
  shape?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.target.type !== "range") return;
    event.target.value = event.target.dataset.score;
    event.target.dispatchEvent(new Event("input", { bubbles: true }));
  });
  const feature = document.querySelector("select[name=feature]");
  feature?.addEventListener("change", () => {
    const other = feature.value !== shape?.dataset.shape;
    shape?.toggleAttribute("hidden", other);
    for (const slider of shape?.querySelectorAll("input") ?? []) slider.disabled = other;
  });
})();
