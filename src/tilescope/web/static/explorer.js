// The explorer's script. It marks cells that share a link, steps through a walk, drags a box, copies, saves, and asks the
// server for the next page. It computes nothing about GPUs: whatever it shows stands in the page already.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const live = location.protocol.startsWith("http");  // an exported file has no server
  let index = new Map();  // word of a link → its cells
  let timer = 0;
  const state = () => location.pathname + location.search;  // a line of the same page is no other state
  let place = state();

  // Marks: the cell under the mouse or the keys, its partners (first word shared), and its relatives (another word shared).
  function indexCells() {
    index = new Map();
    for (const cell of document.querySelectorAll("#drawing [data-link]"))
      for (const word of cell.dataset.link.split(" ")) {
        if (!index.has(word)) index.set(word, []);
        index.get(word).push(cell);
      }
  }
  function unmark() {
    for (const cell of document.querySelectorAll("#drawing .here, #drawing .partner, #drawing .near"))
      cell.classList.remove("here", "partner", "near");
    $("drawing")?.classList.remove("marking");
  }
  function mark(words, here) {
    unmark();
    words.forEach((word, place) => {
      for (const cell of index.get(word) ?? [])
        if (cell !== here) cell.classList.add(place && here ? "near" : "partner");
    });
    here?.classList.add("here");
    if (words.length) $("drawing").classList.add("marking");
    for (const box of document.querySelectorAll("#drawing .cells-box")) if (!here || !box.contains(here)) reveal(box, box.querySelector(".partner"));
  }
  // A partner beyond the edge of its box comes into sight; the page itself stays.
  function reveal(box, cell) {
    if (!cell) return;
    const inner = cell.getBoundingClientRect(), outer = box.getBoundingClientRect();
    if (inner.top < outer.top) box.scrollTop -= outer.top - inner.top + 40;
    else if (inner.bottom > outer.bottom) box.scrollTop += inner.bottom - outer.bottom + 40;
    if (inner.left < outer.left) box.scrollLeft -= outer.left - inner.left + 40;
    else if (inner.right > outer.right) box.scrollLeft += inner.right - outer.right + 40;
  }
  function say(text) { const out = $("readout"); if (out) out.textContent = text; }
  const sentence = (cell) => cell.querySelector("title")?.textContent ?? "";
  function visit(cell) {
    mark((cell.dataset.link ?? "").split(" ").filter(Boolean), cell);
    say(sentence(cell));
  }
  const cellOf = (target) => target instanceof Element ? target.closest("#drawing .cells rect:not(.frame, .halo)") : null;

  document.addEventListener("pointerover", (event) => {
    const cell = cellOf(event.target);
    if (cell && !dragged && !playing) visit(cell);
  });
  document.addEventListener("pointerout", (event) => {
    if (cellOf(event.target) && !cellOf(event.relatedTarget) && !dragged && !playing) { unmark(); showPin(); }
  });

  // A pin: the cell that stays marked, as "figure.row.column" in the address. A click or tap sets it, a second one takes it away.
  let pinned = null;
  const figures = () => [...document.querySelectorAll("#drawing figure .cells-box")];
  function pinOf(cell) {
    const box = cell.closest(".cells-box");
    const [column, row] = placeOf(rowsOf(box), cell);
    return `${figures().indexOf(box)}.${row}.${column}`;
  }
  function cellAt(pin) {
    const [figure, row, column] = pin.split(".").map(Number);
    const box = figures()[figure];
    return box ? rowsOf(box)[row]?.[column] ?? null : null;
  }
  function showPin() {
    if (pinned) visit(pinned);
  }
  function pin(cell) {
    pinned = cell;
    for (const each of document.querySelectorAll("#drawing .pinned")) each.classList.remove("pinned");
    cell?.classList.add("pinned");
    if (cell) visit(cell);
    setQuery("pin", cell ? pinOf(cell) : "");
  }
  // The address and the link on the page, with one word of the query changed.
  function setQuery(name, value) {
    if (!live) return;
    const url = new URL($("link").textContent, location.href), query = new URLSearchParams(url.search);
    if (value === "") query.delete(name); else query.set(name, value);
    const said = query.toString().replaceAll("%2C", ",");
    $("link").textContent = url.pathname + (said ? `?${said}` : "");
    for (const file of document.querySelectorAll("[data-figure]")) file.href = `${url.pathname}.svg?${said}${said && "&"}figure=${file.dataset.figure}`;
    history.replaceState(null, "", $("link").textContent);
    place = state();
  }
  document.addEventListener("click", (event) => {
    const cell = cellOf(event.target);
    if (cell && !event.target.closest("[data-drag]")) pin(cell === pinned ? null : cell);
  });

  // Keys: the arrows visit the cells of the drawing that has the focus.
  const rowsOf = (box) => [...box.querySelectorAll("g.cells")].map((row) => [...row.querySelectorAll("rect:not(.frame, .halo)")]).filter((row) => row.length);
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".cells-box");
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!box || !move) return;
    event.preventDefault();
    const rows = rowsOf(box);
    let [line, column] = (box.dataset.at ?? "").split(",").map(Number);
    if (box.dataset.at === undefined) [line, column] = [0, 0];
    else {
      line = Math.min(Math.max(line + move[0], 0), rows.length - 1);
      column = Math.min(Math.max(column + move[1], 0), rows[line].length - 1);
    }
    box.dataset.at = `${line},${column}`;
    const cell = rows[line]?.[column];
    if (!cell) return;
    if (pinned) pin(cell); else visit(cell);
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".cells-box");
    if (!box || (event.key !== "Enter" && event.key !== " ") || box.dataset.at === undefined) return;
    event.preventDefault();
    const [line, column] = box.dataset.at.split(",").map(Number), cell = rowsOf(box)[line]?.[column];
    if (cell) pin(cell === pinned ? null : cell);
  });

  // Steps: a list of [links, label] in the page.
  let steps = [], step = 0, playing = 0;
  function show(next, remember = true) {
    step = Math.min(Math.max(next, 0), steps.length - 1);
    const [links, label] = steps[step];
    mark(links.split(" "), null);
    say(label);
    const player = $("player");
    player.querySelector("[type=range]").value = step;
    player.querySelector(".count").textContent = `${step + 1} of ${steps.length}`;
    if (remember) setQuery("step", step || "");
  }
  function pause() {
    clearInterval(playing);
    playing = 0;
    const button = $("player")?.querySelector("[data-act=play]");
    button?.setAttribute("aria-pressed", "false");
  }
  function play() {
    if (playing) return pause();
    $("player").querySelector("[data-act=play]").setAttribute("aria-pressed", "true");
    if (step === steps.length - 1) step = -1;
    playing = setInterval(() => step < steps.length - 1 ? show(step + 1) : pause(), 450);
  }
  const acts = { first: () => show(0), back: () => show(step - 1), next: () => show(step + 1) };
  function setUpPlayer() {
    pause();
    const player = $("player");
    if (!player) { steps = []; return; }
    steps = JSON.parse($("steps").textContent);
    player.hidden = false;
    player.querySelector("[type=range]").max = steps.length - 1;
    const first = Number(player.dataset.step);
    if (first) show(first, false);
    else { step = 0; player.querySelector(".count").textContent = `1 of ${steps.length}`; }
  }
  document.addEventListener("click", (event) => {
    const act = event.target.closest?.("#player [data-act]")?.dataset.act;
    if (act === "play") play();
    else if (acts[act]) { pause(); acts[act](); }
  });

  // Dragging: the columns and rows of the grid say which coordinate each cell has. The box's cells go along with the
  // mouse; the server is asked when it is let go.
  let dragged = null;
  function placeOf(rows, cell) {
    const line = rows.findIndex((row) => row.includes(cell));
    return line < 0 ? null : [rows[line].indexOf(cell), line];
  }
  function dragTo(cell) {
    const { figure, rows, from, box } = dragged, to = placeOf(rows, cell);
    if (!to) return;
    const columns = figure.dataset.columns.split(" ").map(Number), lines = figure.dataset.rows.split(" ").map(Number);
    const coords = [...dragged.coords];
    coords[Number(figure.dataset.across)] += columns[to[0]] - columns[from[0]];
    if (figure.dataset.down !== "") coords[Number(figure.dataset.down)] += lines[to[1]] - lines[from[1]];
    dragged.value = coords.join(",");
    say(`coordinates ${dragged.value}`);
    unmark();
    for (const [column, line] of box) rows[line + to[1] - from[1]]?.[column + to[0] - from[0]]?.classList.add("near");
  }
  document.addEventListener("pointerdown", (event) => {
    const cell = cellOf(event.target), figure = cell?.closest("[data-drag]");
    if (!figure || !live || event.button) return;
    const rows = rowsOf(figure), from = placeOf(rows, cell);
    const written = $(`field-${figure.dataset.drag}`).value.split(/[\s,]+/).filter(Boolean).map(Number);
    const rank = $("field-dims").value.split(/[\s,x]+/).filter(Boolean).length;
    const box = rows.flatMap((row, line) => row.flatMap((each, column) => each.dataset.link ? [[column, line]] : []));
    dragged = { figure, rows, from, box, coords: written.length ? written : Array(rank).fill(0), value: null };
    figure.classList.add("dragging");
    event.preventDefault();
  });
  document.addEventListener("pointermove", (event) => {
    const cell = dragged && cellOf(document.elementFromPoint(event.clientX, event.clientY));
    if (cell && dragged.figure.contains(cell)) dragTo(cell);
  });
  document.addEventListener("pointerup", () => {
    if (!dragged) return;
    const { figure, value } = dragged;
    dragged = null;
    figure.classList.remove("dragging");
    unmark();
    if (value === null) return;
    $(`field-${figure.dataset.drag}`).value = value;
    ask();
  });
  document.addEventListener("pointercancel", () => { dragged?.figure.classList.remove("dragging"); dragged = null; });

  // The next page: the form's fields that differ from their defaults make the address.
  function address() {
    const form = $("form"), query = new URLSearchParams();
    for (const field of form.elements) {
      if (!field.name) continue;
      if (field.type === "checkbox") { if (field.checked) query.set(field.name, field.value); }
      else if (field.value !== (field.dataset.default ?? "")) query.set(field.name, field.value);
    }
    const said = query.toString();
    return form.action + (said ? "?" + said : "");
  }
  const LONGEST = 60000;  // of an address; a longer text belongs on the command line
  const PAUSE = 1500;  // milliseconds: states typed closer together share one entry of the history
  let asking = null, typed = 0;  // when the last state was typed
  async function load(url, { whole = false, push = true, typing = false } = {}) {
    clearTimeout(timer);
    timer = 0;
    asking?.abort();
    if (url.length > LONGEST) { document.body.classList.remove("busy"); return tell("This text is too long for an address. Use the command line."); }
    const mine = asking = new AbortController();
    document.body.classList.add("busy");
    try {
      const response = await fetch(url, { signal: mine.signal });
      const text = await response.text();
      $("offline").hidden = true;
      if (!(response.headers.get("content-type") ?? "").startsWith("text/html")) return tell(text.trim());
      const next = new DOMParser().parseFromString(text, "text/html");
      if (!whole && !response.ok && $("drawing") && next.getElementById("said")) return refuse(next);
      if (push && response.ok) enter(response.url, typing);
      take(next, whole);
    } catch (error) {
      if (error.name !== "AbortError") $("offline").hidden = false;
    } finally {
      if (asking === mine && !timer) document.body.classList.remove("busy");  // else a later request does
    }
  }
  function tell(text) { $("announced").textContent = text; say(text); }
  // A state enters the history; one that is typed shortly after another takes that one's place.
  function enter(url, typing) {
    const follows = typing && Date.now() - typed < PAUSE;
    if (url !== location.href) history[follows ? "replaceState" : "pushState"](null, "", url);
    typed = typing ? Date.now() : 0;
    place = state();
  }
  function take(next, whole) {
    place = state();
    document.title = next.title;
    markFields(next);
    const focused = document.activeElement?.id, range = document.activeElement?.selectionStart;
    const parts = whole || !$("answer") || !next.getElementById("answer") ? ["#main"] : ["#answer", ".take"];
    for (const part of parts) document.querySelector(part).replaceWith(document.adoptNode(next.querySelector(part)));
    if (focused && document.activeElement?.id !== focused) { $(focused)?.focus({ preventScroll: true }); if (typeof range === "number") $(focused)?.setSelectionRange?.(range, range); }
    for (const link of next.querySelectorAll(".bar nav a"))
      document.querySelector(`.bar nav a[href="${link.getAttribute("href")}"]`)?.toggleAttribute("aria-current", link.hasAttribute("aria-current"));
    $("announced").textContent = document.querySelector(".verdict")?.textContent ?? "";
    setUp();
  }
  // What cannot be answered: the reasons are shown, the fields are marked, and the last good drawing stays, dimmed.
  function refuse(next) {
    $("said").replaceWith(document.adoptNode(next.getElementById("said")));
    markFields(next);
    for (const part of [$("shown"), document.querySelector(".take")]) part?.classList.add("stale");
    $("announced").textContent = [...document.querySelectorAll("#said .verdict, #said .violations p")].map((each) => each.textContent).join(" ");
  }
  function markFields(next) {
    for (const field of $("form")?.elements ?? []) {
      const other = field.id && next.getElementById(field.id);
      if (other && other.getAttribute("aria-invalid")) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
  }
  function ask(typing = false) { load(address(), { typing }); }
  if (live) {
    document.addEventListener("input", (event) => {
      if (event.target.closest("#player")) { pause(); show(Number(event.target.value)); return; }
      if (!event.target.closest("#form")) return;
      if (event.target.dataset.fills) { $(event.target.dataset.fills).value = event.target.value; event.target.value = ""; ask(); return; }
      clearTimeout(timer);
      if (event.target.hasAttribute("data-form")) load(event.target.selectedOptions[0].dataset.path, { whole: true });
      else { document.body.classList.add("busy"); const typing = event.target.tagName !== "SELECT" && event.target.type !== "checkbox"; timer = setTimeout(ask, typing ? 250 : 0, typing); }
    });
    document.addEventListener("submit", (event) => {
      event.preventDefault();
      if (event.target.id === "form") ask();
      else load(`${event.target.action}?${new URLSearchParams(new FormData(event.target))}`, { whole: true });
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest?.("a.cure");
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      load(link.href, { whole: true });
    });
    addEventListener("popstate", () => { if (state() !== place) load(location.href, { whole: true, push: false }); });
  } else {
    document.addEventListener("input", (event) => { if (event.target.closest("#player")) { pause(); show(Number(event.target.value)); } });
  }

  // Copying and saving.
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest?.("[data-copy]");
    if (copy) {
      const text = copy.dataset.copy === "link" ? new URL($("link").textContent, location.href).href : $(copy.dataset.copy).textContent;
      try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; } catch { copy.textContent = "Not allowed"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    }
    if (event.target.id === "save-png" || event.target.dataset?.from) savePng(event.target);
  });
  // A figure has 300 pixels to the inch of a paper; its SVG has 96.
  function savePng(button) {
    const image = new Image(), from = button.dataset.from;
    image.onload = () => {
      const scale = Math.min(from ? 300 / 96 : 2, 8192 / image.width, 8192 / image.height), canvas = document.createElement("canvas");
      canvas.width = image.width * scale; canvas.height = image.height * scale;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => {
        const link = document.createElement("a");
        link.download = button.dataset.name; link.href = URL.createObjectURL(blob);
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      });
    };
    image.src = $(from ?? "save-svg").href;
  }

  // The list of all pages closes at Escape, and at a click elsewhere.
  const menu = $("menu");
  document.addEventListener("click", (event) => { if (menu && !menu.contains(event.target)) menu.open = false; });
  menu?.addEventListener("keydown", (event) => { if (event.key === "Escape") { menu.open = false; menu.querySelector("summary").focus(); } });

  // Light and dark: the system's choice until the button is pressed.
  const themes = matchMedia("(prefers-color-scheme: dark)");
  const store = (() => { try { return window.localStorage; } catch { return null; } })();
  $("theme")?.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (themes.matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    store?.setItem("tilescope-theme", next);
  });

  function setUp() {
    for (const control of document.querySelectorAll("[data-copy], [data-fills], [data-from], #save-png, #theme")) control.hidden = false;
    const here = document.querySelector(".bar nav [aria-current]");
    if (here) here.parentNode.scrollLeft = here.offsetLeft - here.parentNode.offsetLeft - here.parentNode.clientWidth / 2 + here.clientWidth / 2;
    indexCells();
    setUpPlayer();
    for (const row of document.querySelectorAll(".lines [data-opens]")) {  // the text opens at the worst finding
      const box = row.closest(".scroll");
      box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
    }
    pinned = null;
    const kept = $("drawing")?.dataset.pin, cell = kept ? cellAt(kept) : null;
    if (cell) { pin(cell); reveal(cell.closest(".cells-box"), cell); }
    for (const box of document.querySelectorAll("#drawing [data-drag] .cells-box")) reveal(box, box.querySelector("[data-link]"));
  }
  setUp();
})();
