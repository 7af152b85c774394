"use strict";
// Surfaces that turn: by dragging, or by the arrow keys. Each scene is told by its element's data-scene, with all numbers
// between 0 and 1 along their edge of the box; it is drawn anew from the side from which it is now seen.
{
  const OF = "http://www.w3.org/2000/svg", PER_UNIT = 112, LEFT = 0.5, BASE = 134;
  const LOWEST = 0.09, HIGHEST = 1.25, STEP = 0.09, PER_PIXEL = 0.01;
  const MARKS = { v: "M0 3.3L-3.3-2.7H3.3z", "^": "M0-3.3L3.3 2.7H-3.3z", s: "M-2.7-2.7H2.7V2.7H-2.7z", o: "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z" };

  const projection = (scene, azimuth, elevation) => {
    const [azimuth0, elevation0, depth, high, size] = scene.view;
    const flat = (a, e, x, y, z) => {
      const right = x * Math.cos(a) + y * depth * Math.sin(a), back = y * depth * Math.cos(a) - x * Math.sin(a);
      return [size * right, size * (back * Math.sin(e) + z * high * Math.cos(e)), back];
    };
    // The middle of the box stays where it is first seen; where the box would be too tall from above it is drawn smaller.
    const middle = flat(azimuth0, elevation0, 0.5, 0.5, 0.5), now = flat(azimuth, elevation, 0.5, 0.5, 0.5);
    const tall = size * (Math.hypot(1, depth) * Math.sin(elevation) + high * Math.cos(elevation));
    const fit = Math.min(1, 1.28 / tall);
    return (x, y, z) => {
      const [right, up, back] = flat(azimuth, elevation, x, y, z);
      const across = middle[0] + fit * (right - now[0]), above = middle[1] + fit * (up - now[1]);
      return [PER_UNIT * (across + LEFT), BASE - PER_UNIT * above, back];
    };
  };

  const painter = svg => {
    const add = (name, attributes, text) => {
      const made = document.createElementNS(OF, name);
      for (const key in attributes) made.setAttribute(key, attributes[key]);
      if (text !== undefined) made.textContent = text;
      svg.append(made);
    };
    const along = points => points.map(p => p[0].toFixed(2) + " " + p[1].toFixed(2)).join("L");
    return {
      line: (points, ink, width, dashes) =>
        add("path", { d: "M" + along(points), fill: "none", stroke: ink, "stroke-width": width, "stroke-dasharray": dashes || "none" }),
      area: (points, fill, opacity, edge) =>
        add("path", { d: "M" + along(points) + "z", fill, "fill-opacity": opacity, stroke: edge || "none", "stroke-width": 0.9 }),
      text: (point, text, anchor, ink, size, style) =>
        add("text", { x: point[0], y: point[1], fill: ink, "font-size": size, "text-anchor": anchor, "dominant-baseline": "central", "font-style": style || "normal" }, text),
      mark: (point, shape, ink, hollow) =>
        add("path", { d: MARKS[shape] || MARKS.o, transform: `translate(${point[0].toFixed(2)} ${point[1].toFixed(2)})`, fill: hollow ? "var(--card)" : ink, stroke: ink, "stroke-width": hollow ? 1.3 : 0.5 }),
      dot: (point, ink) => add("circle", { cx: point[0], cy: point[1], r: 1.7, fill: ink }),
    };
  };

  // The floor, the two walls behind, and the names: along the edges in front, and up the wall that ends farthest to the left.
  const frame = (scene, at, draw) => {
    const corners = [[0, 0], [1, 0], [1, 1], [0, 1]];
    draw.area(corners.map(([x, y]) => at(x, y, 0)), "var(--band)", 0.5);
    const [bx, by] = corners.reduce((one, other) => (at(...one, 0)[2] >= at(...other, 0)[2] ? one : other));
    const fx = 1 - bx, fy = 1 - by;
    for (const [x, y] of [[bx, by], [bx, fy], [fx, by]]) draw.line([at(x, y, 0), at(x, y, 1)], "var(--line)", 0.8);
    const leftmost = at(bx, fy, 0)[0] <= at(fx, by, 0)[0] ? [bx, fy] : [fx, by];
    for (const [z, name] of scene.ticks) {
      draw.line([at(bx, fy, z), at(bx, by, z), at(fx, by, z)], "var(--line)", 0.8);
      const [right, up] = at(...leftmost, z);
      draw.text([right - 5, up], name, "end", "var(--muted)", 12);
    }
    const middle = at(0.5, 0.5, 0);
    const edge = (place, names, title) => {
      const half = place(0.5), out = [half[0] - middle[0], half[1] - middle[1]], far = Math.hypot(...out) || 1;
      const beside = ([x, y], by) => [x + out[0] / far * by, y + out[1] / far * by];
      const anchor = out[0] / far < -0.3 ? "end" : out[0] / far > 0.3 ? "start" : "middle";
      for (const [share, name] of names) draw.text(beside(place(share), 9), name, anchor, "var(--muted)", 12);
      draw.text(beside(half, anchor === "middle" ? 24 : 36), title, anchor, "var(--muted)", 12, "italic");
    };
    edge(share => at(share, fy, 0), scene.records, "record");
    edge(share => at(fx, share, 0), scene.files, "file");
  };

  const surface = (scene, at, draw) => {
    const cells = new Map(scene.cells.map(([i, j, x, y, z]) => [i + " " + j, [x, y, z]]));
    if (scene.plane !== null) draw.line([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]].map(([x, y]) => at(x, y, scene.plane)), "var(--muted)", 1.1, "4 3");
    const squares = [];
    for (const [i, j] of scene.cells) {
      const corners = [[i, j], [i, j + 1], [i + 1, j + 1], [i + 1, j]].map(([a, b]) => cells.get(a + " " + b));
      if (corners.every(Boolean)) squares.push(corners.map(corner => at(...corner)));
    }
    const far = square => square.reduce((sum, point) => sum + point[2], 0);
    for (const square of squares.sort((one, other) => far(other) - far(one))) {
      draw.area(square, "var(--card)", 0.7);
      draw.area(square, scene.ink, scene.opacity, scene.ink);
    }
    for (const cell of cells.values()) draw.dot(at(...cell), scene.ink);
    const bars = scene.bars.map(bar => [...bar, cells.get(bar[0] + " " + bar[1])]);
    bars.sort((one, other) => at(...other[7])[2] - at(...one[7])[2]);
    for (const [, , low, high, ink, shape, hollow, [x, y, z]] of bars) {
      draw.line([at(x, y, low), at(x, y, high)], ink, 2);
      draw.mark(at(x, y, z), shape, ink, hollow);
    }
  };

  for (const group of document.querySelectorAll(".three")) {
    const panels = [...group.querySelectorAll("[data-scene]")].map(panel => [JSON.parse(panel.dataset.scene), panel.querySelector("svg")]);
    const [start] = panels.map(([scene]) => scene.view.slice(0, 2));
    let [azimuth, elevation] = start, waiting = false, from = null;
    const show = () => {
      waiting = false;
      for (const [scene, svg] of panels) {
        svg.replaceChildren();
        const at = projection(scene, azimuth, elevation), draw = painter(svg);
        draw.text([0, 12], scene.title, "start", "var(--ink)", 12);
        frame(scene, at, draw);
        surface(scene, at, draw);
      }
    };
    const turn = (right, up) => {
      azimuth -= right;
      elevation = Math.min(HIGHEST, Math.max(LOWEST, elevation + up));
      if (!waiting) requestAnimationFrame(show);
      waiting = true;
    };
    const back = () => turn(azimuth - start[0], start[1] - elevation);
    const keys = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    group.tabIndex = 0;
    group.classList.add("turning");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Surfaces: the arrow keys turn them, Home turns them back");
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "Drag, or use the arrow keys, to turn; a double click turns back.";
    group.after(hint);
    group.addEventListener("keydown", event => {
      if (event.ctrlKey || event.altKey || event.metaKey || !(event.key === "Home" || keys[event.key])) return;
      event.preventDefault();
      event.key === "Home" ? back() : turn(...keys[event.key]);
    });
    group.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      from = [event.clientX, event.clientY];
      group.setPointerCapture(event.pointerId);
    });
    group.addEventListener("pointermove", event => {
      if (!from) return;
      turn((event.clientX - from[0]) * PER_PIXEL, (event.clientY - from[1]) * PER_PIXEL);
      from = [event.clientX, event.clientY];
    });
    for (const end of ["pointerup", "pointercancel"]) group.addEventListener(end, () => { from = null; });
    group.addEventListener("dblclick", back);
  }
}
