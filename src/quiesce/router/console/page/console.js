"use strict";
(() => {
  const EVERY_MS = 1000;
  const STATES = ["free", "cached", "used", "reserved", "held", "quarantined"];
  const HATCHED = 4;
  let data = JSON.parse(document.getElementById("data").textContent);
  let marks = {};
  let fresh = Date.now();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

  function sized(canvas, height) {
    const ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    return [pen, width];
  }

  // The largest cells with which the whole pool fits into the width and about 150 pixels of height.
  function grid(width, cells) {
    for (let size = 22; size > 4; size--) {
      const columns = Math.max(1, Math.floor((width + 1) / size));
      if (Math.ceil(cells / columns) * size <= 152) return { size: Math.min(24, (width + 1) / columns), columns };
    }
    return { size: 4, columns: Math.max(1, Math.floor(width / 4)) };
  }

  function drawMap(canvas, map) {
    let cells = 0;
    for (let i = 1; i < map.runs.length; i += 2) cells += map.runs[i];
    const { size, columns } = grid(canvas.clientWidth, cells);
    const height = Math.max(1, Math.ceil(cells / columns)) * size;
    canvas.style.height = `${height}px`;
    const [pen] = sized(canvas, height);
    const colours = STATES.map(colour);
    const mark = colour("mark");
    const gap = size > 7 ? 1.5 : 1;
    const side = size - gap;
    let cell = 0;
    for (let i = 0; i < map.runs.length; i += 2) {
      for (let n = 0; n < map.runs[i + 1]; n++, cell++) {
        drawCell(pen, (cell % columns) * size, Math.floor(cell / columns) * size, side, map.runs[i], colours, mark);
      }
    }
    canvas.shape = { size, columns, cells };
    canvas.setAttribute("aria-label", described(canvas.dataset.map));
  }

  function drawCell(pen, x, y, side, state, colours, mark) {
    pen.fillStyle = colours[state];
    pen.beginPath();
    pen.roundRect(x, y, side, side, side > 7 ? 2.5 : 1);
    pen.fill();
    if (state < HATCHED || side < 5) return;
    // Not by colour alone: held is struck through once, quarantined twice.
    pen.strokeStyle = mark;
    pen.lineWidth = Math.max(1, side / 8);
    pen.beginPath();
    pen.moveTo(x + side * 0.2, y + side * 0.8);
    pen.lineTo(x + side * 0.8, y + side * 0.2);
    if (state > HATCHED) {
      pen.moveTo(x + side * 0.2, y + side * 0.2);
      pen.lineTo(x + side * 0.8, y + side * 0.8);
    }
    pen.stroke();
  }

  function described(name) {
    const counts = STATES.map((state) => `${data.figures[`${name}.${state}`]} ${state}`);
    return `Map of the pages of ${name}: ${counts.join(", ")}`;
  }

  function drawSpark() {
    const canvas = document.getElementById("spark");
    const [pen, width] = sized(canvas, 52);
    const most = Math.max(1, ...data.tokens);
    const step = width / (data.tokens.length - 1);
    pen.beginPath();
    data.tokens.forEach((tokens, i) => pen.lineTo(i * step, 50 - (46 * tokens) / most));
    pen.strokeStyle = colour("used");
    pen.lineWidth = 1.5;
    pen.lineJoin = "round";
    pen.stroke();
    pen.lineTo(width, 52);
    pen.lineTo(0, 52);
    pen.closePath();
    pen.globalAlpha = 0.14;
    pen.fillStyle = colour("used");
    pen.fill();
  }

  function show() {
    for (const place of document.querySelectorAll("[data-fragment]")) {
      const part = data.fragments[place.dataset.fragment];
      if (marks[place.dataset.fragment] !== part.mark) place.innerHTML = part.html;
      marks[place.dataset.fragment] = part.mark;
    }
    for (const place of document.querySelectorAll("[data-figure]")) {
      const said = data.figures[place.dataset.figure];
      if (said !== undefined && place.textContent !== said) place.textContent = said;
    }
    for (const box of document.querySelectorAll("[data-count]")) {
      box.classList.toggle("none", box.querySelector("dd").textContent === "0");
    }
    document.querySelector('[data-name="held"]').classList.toggle("alarm", data.figures.held !== "0");
    document.getElementById("trouble").textContent = data.trouble || "ready";
    document.body.dataset.ready = data.ready ? "yes" : "no";
    draw();
  }

  function draw() {
    for (const canvas of document.querySelectorAll("[data-map]")) {
      const map = data.maps[canvas.dataset.map];
      if (map) drawMap(canvas, map);
    }
    drawSpark();
  }

  function point(event) {
    const canvas = event.target.closest("[data-map]");
    if (!canvas || !canvas.shape) return;
    const place = document.querySelector(`[data-under="${CSS.escape(canvas.dataset.map)}"]`);
    const box = canvas.getBoundingClientRect();
    const { size, columns, cells } = canvas.shape;
    const column = Math.floor((event.clientX - box.left) / size);
    const cell = Math.floor((event.clientY - box.top) / size) * columns + column;
    const inside = event.type !== "pointerout" && column >= 0 && column < columns && cell >= 0 && cell < cells;
    place.textContent = inside ? told(data.maps[canvas.dataset.map], cell) : "";
  }

  function told(map, cell) {
    const first = cell * map.pages_per_cell;
    const last = Math.min(map.pages, first + map.pages_per_cell) - 1;
    const owners = map.owners.filter(([from, to]) => from <= last && to >= first);
    if (!owners.length) return `page ${first}${last > first ? `-${last}` : ""}: free`;
    return owners.map(([from, to, state, owner]) => `pages ${from}-${to}: ${STATES[state]} ${owner}`).join("; ");
  }

  async function poll() {
    if (!document.hidden) {
      try {
        const answer = await fetch("/console/data", { cache: "no-store" });
        if (answer.status === 401) return window.location.reload();
        if (!answer.ok) throw new Error(answer.status);
        data = await answer.json();
        fresh = Date.now();
        show();
      } catch (error) {
        // The router is away or busy: what is shown is old, and says so.
      }
      const late = Math.round((Date.now() - fresh) / 1000);
      document.body.classList.toggle("stale", late > 3);
      document.getElementById("freshness").textContent = late > 3 ? `no news for ${late} s` : "live";
    }
    window.setTimeout(poll, EVERY_MS);
  }

  for (const kind of ["pointermove", "pointerout"]) document.addEventListener(kind, point);
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const [name, part] of Object.entries(data.fragments)) marks[name] = part.mark;
  show();
  window.setTimeout(poll, EVERY_MS);
})();
