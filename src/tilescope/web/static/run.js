// The page that runs a kernel: an editor with line numbers and colours, and a time line that shows the state after a step.
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const LONGEST = 60000;  // of an address; what is longer is posted
  const LINES_AROUND = 40;  // above and below those in sight, that are coloured
  const TOKENS = /(\/\/[^\n]*|\/\*[\s\S]*?\*\/|^[ \t]*#[^\n]*)|("(?:[^"\\\n]|\\.)*")|(%[\w.]+)|(\.[a-z_][\w:]*)|(\$[\w$]+|^[ \t]*\w+:(?!:))|\b(0[xfdXFD][0-9a-fA-F]+|\d[\w.]*)\b|\b(__\w+__|auto|bool|break|case|char|const|constexpr|continue|do|double|else|extern|float|for|if|int|long|return|short|sizeof|static|struct|switch|template|typename|unsigned|using|void|volatile|while|uint\d+_t|int\d+_t|half|bra|ret|exit|call)\b|([a-z][\w]*(?=\.))/gm;
  const SOURCE_FILES = ["kernel.cu", "kernel_module.py"];
  const KINDS = ["comment", "string", "register", "directive", "label", "number", "keyword", "opcode"];

  // The editor: a text area without ink above the same text in colour, and its line numbers at the left.
  function colour(text) {
    const parts = document.createDocumentFragment();
    let end = 0;
    for (const found of text.matchAll(TOKENS)) {
      const kind = KINDS[found.slice(1).findIndex((part) => part !== undefined)];
      if (found.index > end) parts.append(text.slice(end, found.index));
      const span = document.createElement("span");
      span.className = `code-${kind}`;
      span.textContent = found[0];
      parts.append(span);
      end = found.index + found[0].length;
    }
    parts.append(text.slice(end), "\n");
    return parts;
  }
  // The lines with findings, and those where warps are: of the PTX, or of the source that it was compiled from.
  function marksOf(isSource) {
    const stepping = $("stepping"), at = new Set((stepping?.dataset.lines ?? "").split(" ").map(Number));
    const worst = new Map(), here = new Set();
    for (const row of document.querySelectorAll(".lines tr[data-line]")) {
      const [file, line] = isSource ? (row.dataset.source ?? "").split(":") : ["", row.dataset.line];
      if (isSource && !SOURCE_FILES.includes(file)) continue;
      if (row.id && worst.get(Number(line)) !== "error") worst.set(Number(line), row.className.split(" ")[0]);
      if (at.has(Number(row.dataset.line))) here.add(Number(line));
    }
    if (!isSource) for (const line of at) here.add(line);
    return [worst, here];
  }
  function number(editor) {
    const area = editor.querySelector("textarea"), gutter = editor.querySelector(".gutter");
    const [worst, here] = area.id === "field-launch" ? [new Map(), new Set()] : marksOf(area.id === "field-source");
    const lines = area.value.split("\n").length, parts = document.createDocumentFragment();
    let plain = [];
    const flush = () => { if (plain.length) { parts.append(plain.join("\n") + "\n"); plain = []; } };
    for (let line = 1; line <= lines; line++) {
      if (!worst.has(line) && !here.has(line)) { plain.push(line); continue; }
      flush();
      const mark = document.createElement("b");
      mark.className = `${worst.get(line) ?? ""} ${here.has(line) ? "at" : ""}`;
      mark.textContent = line;
      parts.append(mark, "\n");
    }
    flush();
    gutter.replaceChildren(parts);
  }
  function paint(editor) {
    const area = editor.querySelector("textarea");
    editor.classList.toggle("plain", area.id === "field-launch");
    texts.set(editor, area.value.split("\n"));
    painted.delete(editor);
    number(editor);
    follow(editor);
  }
  // The height of a line as it is laid out: the browser rounds what the style says, which adds up in a long text.
  function lineHeight(area, lines) {
    const style = getComputedStyle(area), height = parseFloat(style.lineHeight), inner = area.scrollHeight - 2 * parseFloat(style.paddingTop);
    return area.scrollHeight > area.clientHeight && Math.abs(inner / lines - height) < 0.5 ? inner / lines : height;
  }
  // Only the lines in sight are coloured: a text may have a hundred thousand.
  const texts = new WeakMap(), painted = new WeakMap();  // lines of an editor; the first and the last that are coloured
  function follow(editor) {
    const area = editor.querySelector("textarea"), ink = editor.querySelector(".ink");
    if (!editor.classList.contains("plain")) {
      const lines = texts.get(editor), height = lineHeight(area, lines.length);
      const first = Math.floor(area.scrollTop / height), count = Math.ceil(area.clientHeight / height);
      const [from, to] = painted.get(editor) ?? [1, 0];
      if (first < from || (first + count > to && to < lines.length)) {
        const start = Math.max(0, first - LINES_AROUND), last = Math.min(lines.length, first + count + LINES_AROUND), sheet = document.createElement("span");
        sheet.className = "sheet";
        sheet.append(colour(lines.slice(start, last).join("\n")));
        ink.replaceChildren(sheet);
        painted.set(editor, [start, last]);
      }
      const top = painted.get(editor)[0] * height - area.scrollTop;
      ink.firstChild.style.transform = `translate(${-area.scrollLeft}px, ${top.toFixed(2)}px)`;
    }
    editor.querySelector(".gutter").scrollTop = area.scrollTop;
  }
  function edit(area) {
    if (!area || area.closest(".editor")) return;
    const editor = document.createElement("div"), ink = document.createElement("pre"), gutter = document.createElement("pre");
    editor.className = "editor";
    ink.className = "ink";
    gutter.className = "gutter";
    for (const part of [ink, gutter]) part.setAttribute("aria-hidden", "true");
    area.wrap = "off";
    area.replaceWith(editor);
    editor.append(gutter, ink, area);
    area.addEventListener("input", () => paint(editor));
    area.addEventListener("scroll", () => follow(editor));
    new ResizeObserver(() => follow(editor)).observe(area);  // it was folded away, or is made larger
    paint(editor);
  }

  // The time line: the last step that was asked for is shown; those on the way to it may be left out, never the last.
  let wanted = null, showing = false;
  function address(step) {
    const query = new URLSearchParams();
    for (const field of $("form").elements) {
      if (!field.name || field.name === "smem_at") continue;
      if (field.value !== (field.dataset.default ?? "")) query.set(field.name, field.value);
    }
    query.set("smem_at", step);
    return `/run?${query}`;
  }
  function request(url) {
    const part = { "tilescope-part": "answer" };  // the texts of the fields are here already
    if (url.length <= LONGEST) return [url, { headers: part }];
    const fields = Object.fromEntries(new URL(url, location.href).searchParams);
    return ["/run", { method: "POST", headers: { ...part, "content-type": "application/json" }, body: JSON.stringify(fields) }];
  }
  async function show() {
    if (showing) return;
    showing = true;
    document.body.classList.add("busy");
    try {
      while (wanted !== null) {
        const step = wanted, url = address(step);
        wanted = null;
        const response = await fetch(...request(url));
        const next = new DOMParser().parseFromString(await response.text(), "text/html");
        $("offline").hidden = true;
        if (!response.ok || !next.getElementById("stepping") || !$("stepping")) break;
        const parts = next.querySelector(".listed .note") ? ["#drawing", ".take", ".listed"] : ["#drawing", ".take"];  // of a long text, the lines around
        for (const part of parts) document.querySelector(part).replaceWith(document.adoptNode(next.querySelector(part)));
        for (const fact of ["step", "lines", "ran"]) $("stepping").dataset[fact] = next.getElementById("stepping").dataset[fact];
        $("field-smem_at").value = step;
        if (url.length <= LONGEST) history.replaceState(null, "", url);
        document.dispatchEvent(new Event("tilescope:drawn"));
      }
    } catch { $("offline").hidden = false; } finally {
      showing = false;
      document.body.classList.remove("busy");
    }
  }
  function go(step) {
    const range = $("step-range");
    range.value = step;
    $("step-count").textContent = `${range.value} of ${range.max}`;
    wanted = Number(range.value);
    show();
  }
  document.addEventListener("input", (event) => { if (event.target.id === "step-range") go(event.target.value); });
  document.addEventListener("click", (event) => {
    const goes = event.target.closest?.("[data-goes]")?.dataset.goes, range = $("step-range");
    if (!goes || !range) return;
    const now = Number(range.value);
    go({ first: 0, back: Math.max(0, now - 1), next: Math.min(Number(range.max), now + 1), last: Number(range.max) }[goes] ?? Number(goes));
  });
  // A run that is too long for its page: recorded after a click; who closes the connection cancels it.
  let recording = null;
  function fieldsOf() {
    return Object.fromEntries([...$("form").elements].filter((field) => field.name && field.value !== (field.dataset.default ?? "")).map((field) => [field.name, field.value]));
  }
  function sayRecording(text, steps) {
    $("recording-said").textContent = text;
    if (steps !== undefined) $("recording-bar").value = steps;
  }
  async function record() {
    recording = new AbortController();
    $("record").disabled = true;
    $("recording-progress").hidden = false;
    sayRecording("begins", 0);
    try {
      const response = await fetch("/run/record", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fieldsOf()), signal: recording.signal });
      if (!response.ok) { sayRecording((await response.text()).trim()); return; }
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "", last = {};
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const events = (rest + value).split("\n\n");
        rest = events.pop();
        for (const event of events) last = JSON.parse(event.slice("data: ".length));
        if (last.doing) sayRecording(`${last.doing}: ${last.steps.toLocaleString("en")} steps`, last.steps);
      }
      if (last.done) document.dispatchEvent(new Event("tilescope:ask"));
      else sayRecording(last.refused ?? "The recording ended early.");
    } catch (error) {
      if (error.name === "AbortError") sayRecording("Cancelled.", 0); else $("offline").hidden = false;
    } finally {
      recording = null;
      if ($("record")) $("record").disabled = false;
    }
  }
  document.addEventListener("click", (event) => {
    if (event.target.id === "record") record();
    if (event.target.id === "record-cancel") recording?.abort();
  });
  // A text that is compiled after a click: what it fills is shown like any PTX. The text stays when the page is asked for again.
  const SOURCE = ["language", "source", "function", "signature", "constants"];
  const store = (() => { try { return window.sessionStorage; } catch { return null; } })();
  const kept = JSON.parse(store?.getItem("tilescope-source") ?? "null") ?? {};
  function keepSource() {
    for (const name of SOURCE) kept[name] = $(`field-${name}`).value;
    kept.open = $("source-panel").open;
    try { store?.setItem("tilescope-source", JSON.stringify(kept)); } catch { /* too long to be kept */ }
  }
  function showLanguage() {
    for (const field of document.querySelectorAll(".for-triton")) field.hidden = $("field-language").value !== "triton";
  }
  function setUpSource() {
    if (!$("source-panel")) return;
    $("source-panel").hidden = false;
    if (kept.open !== undefined) $("source-panel").open = kept.open;
    for (const name of SOURCE) if (kept[name] !== undefined) $(`field-${name}`).value = kept[name];
    showLanguage();
  }
  async function compile() {
    keepSource();
    const fields = { launch: $("field-launch").value };
    for (const name of SOURCE) if (kept[name]) fields[name] = kept[name];
    const said = $("source-said");
    said.className = "source-said";
    said.textContent = "Compiling …";
    $("compile").disabled = true;
    document.body.classList.add("busy");
    try {
      const response = await fetch("/run/compile", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(fields) });
      if (!response.ok) { said.classList.add("error"); said.textContent = (await response.text()).trim(); return; }
      const made = await response.json();
      $("field-ptx").value = made.ptx;
      $("field-launch").value = made.launch;
      $("field-smem_at").value = "";
      said.textContent = made.said;
      kept.said = made.said;
      document.dispatchEvent(new Event("tilescope:ask"));
    } catch { $("offline").hidden = false; } finally {
      document.body.classList.remove("busy");
      if ($("compile")) $("compile").disabled = false;
    }
  }
  document.addEventListener("click", (event) => { if (event.target.id === "compile") compile(); });
  document.addEventListener("input", (event) => { if (event.target.closest?.("#source-panel")) { showLanguage(); keepSource(); } });
  document.addEventListener("toggle", (event) => { if (event.target.id === "source-panel") keepSource(); }, true);
  function markLines() {
    const stepping = $("stepping"), here = new Set((stepping?.dataset.lines ?? "").split(" "));
    for (const row of document.querySelectorAll(".lines tr[data-line]")) row.classList.toggle("at", here.has(row.dataset.line));
    const row = stepping ? document.querySelector(`.lines tr[data-line="${stepping.dataset.ran}"]`) : null, box = row?.closest(".scroll");
    if (!box || stepping.dataset.step === stepping.dataset.shown) return;
    stepping.dataset.shown = stepping.dataset.step;
    if (new URLSearchParams(location.search).has("smem_at")) box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
  }
  function setUp() {
    setUpSource();
    for (const name of ["ptx", "launch", "source"]) edit($(`field-${name}`));
    markLines();
    for (const editor of document.querySelectorAll(".editor")) number(editor);
  }
  document.addEventListener("tilescope:shown", setUp);
  setUp();
})();
