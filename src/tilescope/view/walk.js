// Drawings that answer to the mouse: cells that share a word of data-link light up, and the slider steps through a walk.
for (const root of document.querySelectorAll(".tilescope-walk:not([data-ready])")) {
  root.dataset.ready = "yes";
  const steps = JSON.parse(root.dataset.steps);
  const said = root.querySelector(".said");
  const slider = root.querySelector("input");
  const cells = [...root.querySelectorAll("rect[data-link]")];
  const hint = slider ? "Point at a cell, or move the slider." : "Point at a cell.";

  const mark = (links) => {
    const wanted = new Set(links.split(" "));
    root.classList.toggle("marking", links !== "");
    for (const cell of cells) cell.classList.toggle("near", cell.dataset.link.split(" ").some((word) => wanted.has(word)));
  };
  const showStep = () => {
    const number = slider ? Number(slider.value) : 0;
    const [links, sentence] = number ? steps[number - 1] : ["", hint];
    mark(links);
    said.textContent = number ? `Step ${number} of ${steps.length}: ${sentence}` : sentence;
  };

  root.addEventListener("pointerover", (event) => {
    const cell = event.target.closest("rect[data-link]");
    if (!cell) return showStep();
    mark(cell.dataset.link);
    said.textContent = cell.querySelector("title")?.textContent ?? "";
  });
  root.addEventListener("pointerleave", showStep);
  slider?.addEventListener("input", showStep);
  if (slider) slider.hidden = false;
  showStep();
}
