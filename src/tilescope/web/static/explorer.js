// The explorer's script. It marks cells that share a link, steps through a walk, drags a box, copies, saves, and asks the
// server for the next page. It computes nothing about GPUs: whatever it shows stands in the page already.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const live = document.documentElement.dataset.standalone === undefined;  // an exported page has no server
  let index = new Map();  // word of a link → its cells
  let timer = 0;
  const state = () => location.pathname + location.search;  // a line of the same page is no other state
  let place = state();

  // Marks: the cell under the mouse or the keys, its partners (first word shared), and its relatives (another word shared).
  function indexCells() {
    index = new Map();
    const enter = (link, cell) => {
      for (const word of link.split(" ")) {
        if (!index.has(word)) index.set(word, []);
        index.get(word).push(cell);
      }
    };
    for (const cell of document.querySelectorAll("#drawing [data-link]")) enter(cell.dataset.link, cell);
    for (const box of document.querySelectorAll("#drawing .cells-box"))
      paintOf(box)?.cells.forEach((row, line) => row.forEach((cell, column) => { if (cell[2]) enter(cell[2], [box, line, column]); }));
  }

  // A painted figure: so many cells that all of one colour are one shape. What they say stands beside the picture; a cell that
  // is marked becomes a shape of its own, and texts are set where they are in sight.
  const paints = new WeakMap();
  const SVG = "http://www.w3.org/2000/svg";
  function paintOf(box) {
    if (paints.has(box)) return paints.get(box);
    const told = box.querySelector(".painted-cells"), svg = box.querySelector(".paint");
    let paint = null;
    if (told) {
      paint = { ...JSON.parse(told.textContent), svg, shapes: new Map(), texts: document.createElementNS(SVG, "g"), marks: document.createElementNS(SVG, "g") };
      paint.texts.setAttribute("class", "cells dense");
      paint.marks.setAttribute("class", "cells marks");
      svg.append(paint.marks, paint.texts);
      box.addEventListener("scroll", () => requestAnimationFrame(() => setTexts(box)), { passive: true });
    }
    paints.set(box, paint);
    return paint;
  }
  function shapeOf(box, line, column) {
    const paint = paintOf(box), said = paint.cells[line]?.[column], name = `${line},${column}`;
    if (!said) return null;
    if (!paint.shapes.has(name)) {
      const shape = document.createElementNS(SVG, "rect"), title = document.createElementNS(SVG, "title");
      for (const [key, value] of [["x", paint.lefts[column]], ["y", paint.tops[line]], ["width", paint.width], ["height", paint.height], ["class", paint.colours[said[3]][0]]]) shape.setAttribute(key, value);
      if (said[2]) shape.dataset.link = said[2];
      shape.dataset.place = name;
      title.textContent = said[1];
      shape.append(title);
      paint.shapes.set(name, shape);
    }
    const shape = paint.shapes.get(name);
    if (!shape.isConnected) paint.marks.append(shape);
    return shape;
  }
  function under(starts, size, at) {  // the number of the row or column at a place
    let low = 0, high = starts.length;
    while (low < high) { const middle = low + high >> 1; if (starts[middle] <= at) low = middle + 1; else high = middle; }
    return low && at < starts[low - 1] + size ? low - 1 : -1;
  }
  function paintedCell(event) {
    const svg = event.target instanceof Element ? event.target.closest("#drawing .paint") : null;
    if (!svg) return null;
    const box = svg.closest(".cells-box"), paint = paintOf(box), area = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / area.width;
    const line = under(paint.tops, paint.height, (event.clientY - area.top) * scale), column = under(paint.lefts, paint.width, (event.clientX - area.left) * scale);
    return line < 0 || column < 0 ? null : shapeOf(box, line, column);
  }
  // Texts of the cells in sight, where the longest fits.
  function setTexts(box) {
    const paint = paintOf(box), scale = paint.svg.viewBox.baseVal.width / paint.svg.getBoundingClientRect().width;
    const seen = (starts, size, from, length) => starts.map((start, at) => at).filter((at) => starts[at] + size > from && starts[at] < from + length);
    const lines = seen(paint.tops, paint.height, box.scrollTop * scale, box.clientHeight * scale);
    const columns = seen(paint.lefts, paint.width, box.scrollLeft * scale, box.clientWidth * scale);
    const texts = [];
    for (const line of lines) for (const column of columns) {
      const [text, , , colour] = paint.cells[line][column] ?? [""];
      if (!text || text.length * paint.font_size * 0.61 > paint.width) continue;
      const label = document.createElementNS(SVG, "text");
      label.setAttribute("x", paint.lefts[column] + paint.width / 2);
      label.setAttribute("y", Math.round(paint.tops[line] + paint.height / 2 + paint.font_size * 0.35));
      label.setAttribute("class", paint.colours[colour][1]);
      label.textContent = text;
      texts.push(label);
    }
    paint.texts.replaceChildren(...texts);
  }
  const shapeAt = (each) => Array.isArray(each) ? shapeOf(...each) : each;
  let marked = [];
  function clear(here) {
    for (const cell of marked) {
      cell.classList.remove("here", "partner", "near");
      if (cell.dataset.place && cell !== here && !pins.includes(cell)) cell.remove();
    }
    marked = [];
  }
  function unmark() {
    clear();
    $("drawing")?.classList.remove("marking");
  }
  function mark(words, here) {
    clear(here);
    const firsts = new Map();  // the first partner in each box
    const own = here?.closest(".cells-box");
    words.forEach((word, place) => {
      for (const each of index.get(word) ?? []) {
        const cell = shapeAt(each);
        if (cell === here) continue;
        const kind = place && here ? "near" : "partner", box = cell.closest(".cells-box");
        cell.classList.add(kind);
        marked.push(cell);
        if (kind === "partner" && !firsts.has(box)) firsts.set(box, cell);
      }
    });
    if (here) { here.classList.add("here"); marked.push(here); }
    $("drawing").classList.toggle("marking", words.length > 0);
    for (const [box, cell] of firsts) if (box !== own) reveal(box, cell);
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
  let over = null;  // the cell of a painted figure under the mouse
  document.addEventListener("pointermove", (event) => {
    if (dragged || playing) return;
    const cell = paintedCell(event);
    if (cell === over) return;
    if (cell) visit(cell); else if (over) { unmark(); showPins(); }
    over = cell;
  });

  document.addEventListener("pointerover", (event) => {
    const cell = cellOf(event.target);
    if (cell && !dragged && !playing) visit(cell);
  });
  document.addEventListener("pointerout", (event) => {
    if (cellOf(event.target) && !cellOf(event.relatedTarget) && !dragged && !playing) { unmark(); showPins(); }
  });

  // Pins: cells that stay marked, as "figure.row.column,…" in the address. A click or tap sets one, a second one takes it away.
  // What they say is listed below the line of the cell under the mouse, so that they compare.
  const MOST_PINS = 8;
  let pins = [];
  const figures = () => [...document.querySelectorAll("#drawing figure .cells-box")];
  function pinOf(cell) {
    const box = cell.closest(".cells-box");
    const [column, row] = cell.dataset.place ? spotOf(cell) : placeOf(rowsOf(box), cell);
    return `${figures().indexOf(box)}.${row}.${column}`;
  }
  const cellIn = (box, row, column) => paintOf(box) ? shapeOf(box, row, column) : rowsOf(box)[row]?.[column] ?? null;
  const sizeOf = (box) => paintOf(box) ? paintOf(box).cells.map((row) => row.length) : rowsOf(box).map((row) => row.length);
  function cellAt(pin) {
    const [figure, row, column] = pin.split(".").map(Number);
    const box = figures()[figure];
    return box ? cellIn(box, row, column) : null;
  }
  function showPins() {
    if (pins.length > 1) { markAll(pins); say(`${pins.length} cells are pinned.`); }
    else if (pins.length) visit(pins[0]);
    else if (picks()) showPicked();
  }
  function markAll(cells) {
    clear(cells[0]);
    for (const cell of cells) {
      cell.classList.add("here");
      marked.push(cell);
      for (const each of index.get((cell.dataset.link ?? "").split(" ")[0]) ?? []) {
        const partner = shapeAt(each);
        if (!cells.includes(partner)) { partner.classList.add("partner"); marked.push(partner); }
      }
    }
    $("drawing").classList.add("marking");
  }
  function setPins(cells) {
    pins = cells;
    for (const each of document.querySelectorAll("#drawing .pinned")) each.classList.remove("pinned");
    for (const cell of pins) cell.classList.add("pinned");
    listPins();
    if (pins.length) showPins(); else unmark();
    setQuery("pin", pins.map(pinOf).join(","));
  }
  function togglePin(cell) {
    if (pins.includes(cell)) setPins(pins.filter((each) => each !== cell));
    else if (pins.length < MOST_PINS) setPins([...pins, cell]);
    else say(`${MOST_PINS} cells are pinned: take one away first.`);
  }
  function listPins() {
    const list = $("pins");
    if (!list) return;
    list.hidden = pins.length === 0;
    list.replaceChildren(...pins.map((cell, number) => {
      const entry = document.createElement("li"), text = document.createElement("span"), away = document.createElement("button");
      text.textContent = sentence(cell) || `Pin ${number + 1}`;
      away.type = "button";
      away.textContent = "×";
      away.dataset.unpins = number;
      away.setAttribute("aria-label", `Take away pin ${number + 1}`);
      entry.append(text, away);
      entry.addEventListener("pointerenter", () => visit(cell));
      entry.addEventListener("pointerleave", () => { unmark(); showPins(); });
      return entry;
    }));
  }
  // The address and the link on the page, with one word of the query changed.
  function setQuery(name, value) {
    if (!live || !$("link")) return;
    const url = new URL($("link").textContent, location.href), query = new URLSearchParams(url.search);
    if (value === "") query.delete(name); else query.set(name, value);
    const said = query.toString().replaceAll("%2C", ",");
    $("link").textContent = url.pathname + (said ? `?${said}` : "");
    for (const file of document.querySelectorAll("[data-figure]")) file.href = `${url.pathname}.svg?${said}${said && "&"}figure=${file.dataset.figure}`;
    history.replaceState(null, "", $("link").textContent);
    place = state();
  }
  // Where a page follows a place of its drawing, a cell that is clicked becomes that place: its field says so, and the page
  // is asked for again.
  const picks = () => live ? $("drawing")?.dataset.picks : undefined;
  const picked = () => $(`field-${picks()}`)?.value;
  let walking = false;  // whether a step of the player led to the place
  function showPicked() {
    const cell = walking ? null : [...document.querySelectorAll("#drawing [data-goes]")].find((each) => each.dataset.goes === picked());
    if (cell) visit(cell);
    else if (walking && steps[step]) { mark(steps[step][0].split(" "), null); say(steps[step][1]); }
  }
  function go(place, byStep = false) {
    walking = byStep;
    $(`field-${picks()}`).value = place;
    return load(address(), { typing: true });
  }
  document.addEventListener("click", (event) => {
    const cell = cellOf(event.target) ?? paintedCell(event);
    if (cell && picks()) { if (cell.dataset.goes) go(cell.dataset.goes); return; }
    if (cell && !panned && !pulledAway) togglePin(cell);
    const away = event.target.closest?.("[data-unpins]");
    if (away) setPins(pins.filter((_, number) => number !== Number(away.dataset.unpins)));
  });

  // A step of the arrow keys from the cell of the place that is followed; beyond the drawing, as the page says. Steps wait for
  // each other: the next one starts from the drawing that this one leads to.
  let following = Promise.resolve();
  function follow(figure, key, move) {
    const box = figures()[figure], rows = box ? rowsOf(box) : [];
    const at = placeOf(rows, rows.flat().find((cell) => cell.dataset.goes === picked()));
    const next = at && rows[at[1] + move[0]]?.[at[0] + move[1]]?.dataset.goes || JSON.parse($("drawing").dataset.moves)[key];
    return next ? go(next) : undefined;
  }

  // Keys: the arrows visit the cells of the drawing that has the focus.
  const rowsOf = (box) => [...box.querySelectorAll("g.cells")].map((row) => [...row.querySelectorAll("rect:not(.frame, .halo)")]).filter((row) => row.length);
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".cells-box");
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!box || !move) return;
    event.preventDefault();
    if (picks()) {
      const figure = figures().indexOf(box);
      following = following.then(() => follow(figure, event.key, move));
      return;
    }
    const sizes = sizeOf(box);
    let [line, column] = (box.dataset.at ?? "").split(",").map(Number);
    if (box.dataset.at === undefined) [line, column] = [0, 0];
    else {
      line = Math.min(Math.max(line + move[0], 0), sizes.length - 1);
      column = Math.min(Math.max(column + move[1], 0), sizes[line] - 1);
    }
    box.dataset.at = `${line},${column}`;
    const cell = cellIn(box, line, column);
    if (!cell) return;
    visit(cell);
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  document.addEventListener("keydown", (event) => {
    const box = event.target.closest?.(".cells-box");
    if (!box || (event.key !== "Enter" && event.key !== " ") || box.dataset.at === undefined) return;
    event.preventDefault();
    const [line, column] = box.dataset.at.split(",").map(Number), cell = cellIn(box, line, column);
    if (cell) togglePin(cell);
  });

  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && pins.length) setPins(pins.slice(0, -1)); });  // the last one first

  // Steps: a list of [links, label] in the page.
  let steps = [], step = 0, playing = 0, walk = "";
  function count() {
    $("player").querySelector("[type=range]").value = step;
    $("player").querySelector(".count").textContent = `${step + 1} of ${steps.length}`;
  }
  function show(next, remember = true) {
    step = Math.min(Math.max(next, 0), steps.length - 1);
    const [links, label, goes] = steps[step];
    if (goes && picks()) { count(); go(goes, true); return; }  // the page follows
    mark(links.split(" "), null);
    say(label);
    count();
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
    playing = setInterval(() => step < steps.length - 1 ? show(step + 1) : playOn(), 450);
  }
  // Before the first and after the last step of a part of a longer walk, the part that is next there is shown.
  async function turnTo(part, last) {
    if (!live || !part) return false;
    await load(part, { typing: true });
    if ($("player")) show(last ? steps.length - 1 : 0);
    return true;
  }
  async function playOn() {
    pause();
    if (await turnTo($("player").dataset.onward, false) && $("player") && !playing) play();
  }
  function seek(control) {
    pause();
    if (control.dataset.act === "walk") { walk = control.value; setUpPlayer(); } else show(Number(control.value));
  }
  const acts = {
    first: () => show(0),
    back: () => step > 0 ? show(step - 1) : turnTo($("player").dataset.backward, true),
    next: () => step < steps.length - 1 ? show(step + 1) : turnTo($("player").dataset.onward, false),
  };
  function setUpPlayer() {
    const player = $("player"), was = playing;
    if (!player) { pause(); steps = []; return; }
    const all = JSON.parse($("steps").textContent), choice = player.querySelector("select");
    if (choice && all.some((each) => each[3] === walk)) choice.value = walk;
    steps = choice ? all.filter((each) => each[3] === choice.value) : all;
    player.hidden = false;
    player.querySelector("[type=range]").max = steps.length - 1;
    if (picks()) {  // the step that leads to the place that is followed; a player goes on
      step = Math.max(0, steps.findIndex((each) => each[2] === picked()));
      count();
      showPicked();
      if (was) player.querySelector("[data-act=play]").setAttribute("aria-pressed", "true");
      return;
    }
    pause();
    const first = Number(player.dataset.step);
    if (first) show(first, false);
    else { step = 0; count(); }
  }
  document.addEventListener("click", (event) => {
    const act = event.target.closest?.("#player [data-act]")?.dataset.act;
    if (act === "play") play();
    else if (acts[act]) { pause(); acts[act](); }
  });

  // Dragging: the columns and rows of the grid say which coordinate each cell has. The box's cells go along with the
  // mouse; the server is asked when it is let go.
  let dragged = null, pulledAway = false;  // a drag ends in a click, which pins nothing
  const spotOf = (cell) => cell.dataset.place.split(",").map(Number).reverse();  // column and line of a painted cell
  function placeOf(rows, cell) {
    const line = rows.findIndex((row) => row.includes(cell));
    return line < 0 ? null : [rows[line].indexOf(cell), line];
  }
  function dragTo(cell) {
    const { figure, rows, from, box } = dragged, to = cell.dataset.place ? spotOf(cell) : placeOf(rows, cell);
    if (!to) return;
    const columns = figure.dataset.columns.split(" ").map(Number), lines = figure.dataset.rows.split(" ").map(Number);
    const coords = [...dragged.coords];
    coords[Number(figure.dataset.across)] += columns[to[0]] - columns[from[0]];
    if (figure.dataset.down !== "") coords[Number(figure.dataset.down)] += lines[to[1]] - lines[from[1]];
    dragged.value = coords.join(",");
    say(`coordinates ${dragged.value}`);
    unmark();
    for (const [column, line] of box) {
      const found = rows[line + to[1] - from[1]]?.[column + to[0] - from[0]], near = found?.place ? shapeOf(...found.place) : found;
      if (near) { near.classList.add("near"); marked.push(near); }
    }
  }
  document.addEventListener("pointerdown", (event) => {
    const cell = cellOf(event.target) ?? paintedCell(event), figure = cell?.closest("[data-drag]");
    if (!figure || !live || event.button) return;
    const own = figure.querySelector(".cells-box"), paint = paintOf(own);
    const rows = paint ? paint.cells.map((row, line) => row.map((said, column) => ({ dataset: { link: said[2] }, place: [own, line, column] }))) : rowsOf(figure);
    const from = paint ? spotOf(cell) : placeOf(rows, cell);
    const written = $(`field-${figure.dataset.drag}`).value.split(/[\s,]+/).filter(Boolean).map(Number);
    const rank = $("field-dims").value.split(/[\s,x]+/).filter(Boolean).length;
    const box = rows.flatMap((row, line) => row.flatMap((each, column) => each.dataset.link ? [[column, line]] : []));
    dragged = { figure, rows, from, box, coords: written.length ? written : Array(rank).fill(0), value: null };
    figure.classList.add("dragging");
    event.preventDefault();
  });
  document.addEventListener("pointermove", (event) => {
    const at = dragged && document.elementFromPoint(event.clientX, event.clientY);
    const cell = at && (cellOf(at) ?? paintedCell({ target: at, clientX: event.clientX, clientY: event.clientY }));
    if (cell && dragged.figure.contains(cell)) dragTo(cell);
  });
  document.addEventListener("pointerup", () => {
    if (!dragged) return;
    const { figure, value, coords } = dragged;
    pulledAway = value !== null && value !== coords.join(",");
    dragged = null;
    figure.classList.remove("dragging");
    unmark();
    if (!pulledAway) return;
    $(`field-${figure.dataset.drag}`).value = value;
    ask();
  });
  document.addEventListener("pointercancel", () => { dragged?.figure.classList.remove("dragging"); dragged = null; });

  // A timeline: the wheel with ctrl, dragging and keys show other ticks of it, as the buttons above it do.
  let panned = false;  // a drag ends in a click, which pins nothing
  const ticksOf = (figure) => figure.dataset.pan.split(" ").map(Number);
  function showTicks(figure, first, count) {
    const total = ticksOf(figure)[2], [LEAST, MOST] = [8, 512];
    const shown = Math.min(Math.max(Math.round(count), LEAST), MOST, Math.max(total, LEAST));
    const from = Math.max(0, Math.min(Math.round(first), total - shown));
    figure.dataset.pan = `${from} ${shown} ${total}`;
    const query = new URLSearchParams(new URL($("link").textContent, location.href).search);
    query.delete("pin"); query.delete("step"); query.set("ticks", `${from}-${from + shown - 1}`);
    load(`${location.pathname}?${query.toString().replaceAll("%2C", ",")}`, { typing: true });
  }
  const timelineOf = (target) => live && target instanceof Element ? target.closest("[data-pan]") : null;
  document.addEventListener("wheel", (event) => {
    const figure = event.ctrlKey ? timelineOf(event.target) : null;
    if (!figure) return;
    event.preventDefault();
    const [first, count] = ticksOf(figure), area = figure.querySelector("svg:not(.labels)").getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - area.left) / area.width, 0), 1), wanted = event.deltaY > 0 ? count * 2 : count / 2;
    showTicks(figure, first + share * (count - wanted), wanted);
  }, { passive: false });
  document.addEventListener("keydown", (event) => {
    const figure = timelineOf(event.target);
    if (!figure || event.ctrlKey || event.metaKey || event.altKey) return;
    const [first, count, total] = ticksOf(figure), half = count / 2;
    const moves = { PageUp: [first - half, count], PageDown: [first + half, count], Home: [0, count], End: [total, count], "+": [first + half / 2, half], "=": [first + half / 2, half], "-": [first - half, 2 * count] };
    if (!moves[event.key]) return;
    event.preventDefault();
    showTicks(figure, ...moves[event.key]);
  });
  let pulled = null;  // the timeline under a pressed mouse
  document.addEventListener("pointerdown", (event) => {
    panned = false;
    const figure = timelineOf(event.target);
    if (figure && event.pointerType === "mouse" && !event.button) pulled = { figure, from: event.clientX, by: 0 };
  });
  document.addEventListener("pointermove", (event) => {
    if (!pulled) return;
    pulled.by = event.clientX - pulled.from;
    if (Math.abs(pulled.by) < 5 && !panned) return;
    panned = true;
    pulled.figure.classList.add("panning");
    pulled.figure.querySelector("svg:not(.labels)").style.transform = `translateX(${pulled.by}px)`;
  });
  document.addEventListener("pointerup", () => {
    if (!pulled) return;
    const { figure, by } = pulled, area = figure.querySelector("svg:not(.labels)");
    pulled = null;
    figure.classList.remove("panning");
    area.style.transform = "";
    if (!panned) return;
    const [first, count] = ticksOf(figure);
    showTicks(figure, first - by * count / area.getBoundingClientRect().width, count);
  });

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
  const LONGEST = 60000;  // of an address; what is longer is posted, and has no link
  const LONG = 200000;  // characters of a text that is asked about only when a button is pressed
  const PAUSE = 1500;  // milliseconds: states typed closer together share one entry of the history
  let asking = null, typed = 0;  // when the last state was typed
  async function load(url, { whole = false, push = true, typing = false } = {}) {
    clearTimeout(timer);
    timer = 0;
    asking?.abort();
    const mine = asking = new AbortController();
    document.body.classList.add("busy");
    try {
      const response = await fetch(...requestOf(url, mine.signal, whole || !$("answer") ? {} : { "tilescope-part": "answer" }));
      const text = await response.text();
      $("offline").hidden = true;
      if (!(response.headers.get("content-type") ?? "").startsWith("text/html")) return refuseWith(text.trim());
      const next = new DOMParser().parseFromString(text, "text/html");
      if (!whole && !response.ok && $("drawing") && next.getElementById("said")) return refuse(next);
      if (push && response.ok && url.length <= LONGEST) enter(response.url, typing);
      take(next, whole);
    } catch (error) {
      if (error.name !== "AbortError") $("offline").hidden = false;
    } finally {
      if (asking === mine && !timer) document.body.classList.remove("busy");  // else a later request does
    }
  }
  function requestOf(url, signal, headers) {
    if (url.length <= LONGEST) return [url, { signal, headers }];
    const place = new URL(url, location.href), fields = Object.fromEntries(place.searchParams);
    return [place.pathname, { signal, method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(fields) }];
  }
  // What no page answers: the reason stands above the last answer, which is dimmed.
  function refuseWith(text) {
    const verdict = document.querySelector("#said .verdict");
    if (verdict) { verdict.textContent = text; verdict.classList.add("refused"); }
    for (const part of document.querySelectorAll("#said > :not(.verdict), #shown, .take")) part.classList.add("stale");
    $("announced").textContent = text;
    say(text);
  }
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
    const box = figures().indexOf(document.activeElement), focused = document.activeElement?.id, range = document.activeElement?.selectionStart;
    const parts = whole || !$("answer") || !next.getElementById("answer") ? ["#main"] : ["#answer", ".take"];
    for (const part of parts) document.querySelector(part).replaceWith(document.adoptNode(next.querySelector(part)));
    if (box >= 0) figures()[box]?.focus({ preventScroll: true });
    if (focused && document.activeElement?.id !== focused) { $(focused)?.focus({ preventScroll: true }); if (typeof range === "number") $(focused)?.setSelectionRange?.(range, range); }
    for (const link of next.querySelectorAll(".bar nav a"))
      document.querySelector(`.bar nav a[href="${link.getAttribute("href")}"]`)?.toggleAttribute("aria-current", link.hasAttribute("aria-current"));
    const said = next.getElementById("state");
    if (said && $("state")) $("state").textContent = said.textContent;
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
  // Another form of the page. Fields that both have keep their text; what only the left form had is there again on the way back.
  const written = new Map();
  const fieldsOf = () => [...$("form").elements].filter((field) => field.name && field.labels?.length && !field.hasAttribute("data-form"));
  const nameOf = (field) => `${field.name} ${field.labels[0].textContent}`;
  async function switchForm(path) {
    for (const field of fieldsOf()) written.set(nameOf(field), field.type === "checkbox" ? field.checked : field.value);
    await load(path, { whole: true });
    let changed = false;
    for (const field of fieldsOf()) {
      const kept = written.get(nameOf(field)), slot = field.type === "checkbox" ? "checked" : "value";
      if (kept === undefined || kept === field[slot]) continue;
      const before = field[slot];
      field[slot] = kept;  // a list takes only what it offers
      if (field[slot] === kept) changed = true; else field[slot] = before;
    }
    if (!changed) return;
    typed = Date.now();  // one entry of the history for both
    await load(address(), { typing: true });
  }
  function ask(typing = false) { load(address(), { typing }); }
  // After a button the answer comes into view, if its first line is not.
  function showAnswer() {
    const first = document.querySelector("#said .verdict") ?? $("answer"), area = first?.getBoundingClientRect();
    const top = document.querySelector(".bar").getBoundingClientRect().bottom;
    if (area && (area.top < top || area.bottom > innerHeight)) $("answer").scrollIntoView({ block: "start" });
  }
  if (live) {
    document.addEventListener("input", (event) => {
      if (event.target.closest("#player")) { seek(event.target); return; }
      if (!event.target.closest("#form") || event.target.type === "file") return;
      if (event.target.dataset.fills) { $(event.target.dataset.fills).value = event.target.value; event.target.value = ""; ask(); return; }
      clearTimeout(timer);
      if (event.target.value.length > LONG) { refuseWith("The text has changed. Press Show: it is too long to be asked about at every key."); return; }
      if (event.target.hasAttribute("data-form")) switchForm(event.target.selectedOptions[0].dataset.path);
      else { document.body.classList.add("busy"); const typing = event.target.tagName !== "SELECT" && event.target.type !== "checkbox"; timer = setTimeout(ask, typing ? 250 : 0, typing); }
    });
    document.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (event.target.id === "form") await load(address());
      else await load(`${event.target.action}?${new URLSearchParams(new FormData(event.target))}`, { whole: true });
      showAnswer();
    });
    document.addEventListener("click", async (event) => {
      const link = event.target.closest?.("a.cure, a.swap");
      if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      await load(link.href, { whole: link.matches(".cure") });
      if (link.matches(".cure")) showAnswer();
    });
    document.addEventListener("tilescope:ask", async () => { await load(address()); showAnswer(); });  // another script has made an answer ready
    addEventListener("popstate", () => { if (state() !== place) load(location.href, { whole: true, push: false }); });
  } else {
    document.addEventListener("input", (event) => { if (event.target.closest("#player")) seek(event.target); });
  }

  // A file that is dropped on the page, or opened by a button: the server says which fields it fills.
  const openers = () => [...document.querySelectorAll("[data-opens]")];
  function openerOf(target, file) {
    const own = target.closest?.(".field")?.querySelector("[data-opens]") ?? target.closest?.("form.paste")?.querySelector("[data-opens]");
    const ending = file.name.split(".").pop().toLowerCase();
    return own ?? openers().find((each) => each.dataset.endings.split(" ").includes(ending)) ?? openers()[0];
  }
  async function openFile(opener, file) {
    document.body.classList.add("busy");
    try {
      const response = await fetch(`${$("form").getAttribute("action")}/open/${opener.dataset.opens}`, { method: "POST", headers: { "content-type": "application/octet-stream" }, body: file });
      if (!response.ok) return refuseWith(`${file.name}: ${(await response.text()).trim()}`);
      const fields = await response.json();
      for (const [name, text] of Object.entries(fields)) if ($(`field-${name}`)) $(`field-${name}`).value = text;
      if (opener.dataset.opens === "source") { $("field-language").value = file.name.endsWith(".py") ? "triton" : "cuda"; $("source-panel").open = true; $("field-source").dispatchEvent(new Event("input", { bubbles: true })); return; }
      if (fields.paste === undefined) await load(address());
      else await load(`${$("form").action}?${new URLSearchParams(fields)}`, { whole: true });
      showAnswer();
    } catch { $("offline").hidden = false; } finally { document.body.classList.remove("busy"); }
  }
  if (live) {
    document.addEventListener("change", (event) => {
      const file = event.target.dataset?.opens && event.target.files[0];
      if (!file) return;
      openFile(event.target, file);
      event.target.value = "";
    });
    document.addEventListener("dragover", (event) => {
      if (!openers().length || !event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
    document.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      const file = event.dataTransfer?.files[0];
      if (!file || !openers().length) return;
      event.preventDefault();
      openFile(openerOf(event.target, file), file);
    });
  }

  // On a phone a hint is shown when its field is first entered, and stays: a button below it must not move away under a tap.
  document.addEventListener("focusin", (event) => event.target.closest?.(".field")?.classList.add("entered"));

  // On a phone the form is folded behind a line that says its state.
  document.addEventListener("click", (event) => {
    const fold = event.target.closest?.("#fold");
    if (fold) fold.setAttribute("aria-expanded", String(fold.getAttribute("aria-expanded") !== "true"));
  });

  // Copying and saving.
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest?.("[data-copy]");
    if (copy) {
      const text = (copy.dataset.copy === "link" ? $("origin").textContent : "") + $(copy.dataset.copy).textContent;
      try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; } catch { copy.textContent = "Not allowed"; }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    }
    const button = event.target;
    if (button.id === "save-png" || button.dataset?.from) save(await pictureOf(button), button.dataset.name);
    if (button.id === "copy-picture") {
      try { await navigator.clipboard.write([new ClipboardItem({ "image/png": pictureOf(button) })]); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
      setTimeout(() => { button.textContent = "Picture"; }, 1500);
    }
    if (button.dataset?.packed) save(await unpack(button), button.dataset.name);
  });
  function save(blob, name) {
    const link = document.createElement("a");
    link.download = name; link.href = URL.createObjectURL(blob);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
  // An exported page holds its files packed.
  async function unpack(button) {
    const packed = Uint8Array.from(atob(button.dataset.packed), (each) => each.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Blob([await new Response(stream).arrayBuffer()], { type: button.dataset.type });
  }
  // A figure has 300 pixels to the inch of a paper; its SVG has 96.
  async function pictureOf(button) {
    const image = new Image(), from = button.dataset.from, file = $(from ?? "save-svg");
    image.src = file.dataset.packed ? URL.createObjectURL(await unpack(file)) : file.href;
    await image.decode();
    const scale = Math.min(from ? 300 / 96 : 2, 8192 / image.width, 8192 / image.height), canvas = document.createElement("canvas");
    canvas.width = image.width * scale; canvas.height = image.height * scale;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((done) => canvas.toBlob(done));
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

  // On a phone only the last column of labels is shown, so that there is room for the cells: names, without their kinds.
  function cropLabels(labels) {
    const columns = new Map();  // right end of a column of labels → their left ends
    for (const label of labels.querySelectorAll("text")) {
      const right = Number(label.getAttribute("x"));
      columns.set(right, [...columns.get(right) ?? [], right - label.getComputedTextLength()]);
    }
    const rights = [...columns.keys()].filter((right) => columns.get(right).length > 1);
    if (rights.length < 2) return;
    const right = Math.max(...rights), left = Math.min(...columns.get(right)), box = labels.viewBox.baseVal;
    const scale = labels.getBoundingClientRect().width / box.width, width = right - left + 10;
    for (const label of labels.querySelectorAll("text")) if (Number(label.getAttribute("x")) !== right) label.remove();
    labels.setAttribute("viewBox", `${left - 4} ${box.y} ${width} ${box.height}`);
    labels.setAttribute("width", width * scale);
  }

  function setUp() {
    for (const control of document.querySelectorAll("[data-copy], [data-fills], .open, [data-from], #save-png, #copy-picture, #theme")) control.hidden = false;
    const here = document.querySelector(".bar nav [aria-current]");
    const bar = here?.parentNode, end = here ? here.offsetLeft - bar.offsetLeft + here.clientWidth : 0;
    if (here && end + 32 > bar.clientWidth) bar.scrollLeft = end - bar.clientWidth / 2;  // its right end fades out
    marked = [];
    over = null;
    indexCells();
    for (const box of figures()) {
      if (paintOf(box)) setTexts(box);
      const widthOfLabels = () => box.querySelector(".labels")?.getBoundingClientRect().width ?? 0;
      if (widthOfLabels() > 0.35 * box.clientWidth) cropLabels(box.querySelector(".labels"));
      box.classList.toggle("crowded", widthOfLabels() > 0.4 * box.clientWidth);  // on a phone: labels are scrolled away with the cells
      reveal(box, box.querySelector(".frame.focus"));
    }
    if (live && $("origin")) $("origin").textContent = location.origin;
    setUpPlayer();
    for (const row of document.querySelectorAll(".lines [data-opens]")) {  // the text opens at the worst finding
      const box = row.closest(".scroll");
      box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
    }
    pins = [];
    const kept = ($("drawing")?.dataset.pin ?? "").split(",").map((each) => each ? cellAt(each) : null).filter(Boolean);
    if (kept.length) { setPins(kept); for (const cell of kept) reveal(cell.closest(".cells-box"), cell); }
    for (const box of document.querySelectorAll("#drawing [data-pan] .cells-box")) reveal(box, box.querySelector("rect.collision:not(.frame)"));
    for (const box of document.querySelectorAll("#drawing [data-drag] .cells-box")) {
      const paint = paintOf(box), line = paint ? paint.cells.findIndex((row) => row.some((said) => said[2])) : -1;
      const first = line < 0 ? box.querySelector("[data-link]") : shapeOf(box, line, paint.cells[line].findIndex((said) => said[2]));
      reveal(box, first);
      if (line >= 0 && !pins.includes(first)) first.remove();
    }
    document.dispatchEvent(new Event("tilescope:shown"));
  }
  document.addEventListener("tilescope:drawn", setUp);  // another script has replaced the drawing
  setUp();
})();
