// A canvas that draws itself sharp at any width, and in which one points with a mouse, a finger or the arrow keys.

/**
 * Make a picture of a canvas element.
 * draw(context, width) draws at a width in CSS pixels and returns what can be pointed at: {parts, height};
 * a part is a grid {name, x, y, cell: [width, height], columns, rows}. point(part, column, row, sure) is told where;
 * sure: by a click or a key, not only by hovering.
 */
function picture(canvas, draw, point) {
  let parts = [], height = 0, cursor = null;
  const self = { redraw, cursor: () => cursor };

  function redraw() {
    const width = canvas.parentElement.clientWidth, density = window.devicePixelRatio || 1;
    if (!width) return;
    const context = canvas.getContext("2d");
    for (let pass = 0; pass < 2; pass++) { // its height is known once it was drawn
      const size = [Math.round(width * density), Math.round(height * density)];
      if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
      canvas.style.height = `${height}px`;
      context.setTransform(density, 0, 0, density, 0, 0);
      context.clearRect(0, 0, width, height);
      const drawn = draw(context, width);
      parts = drawn.parts;
      if (drawn.height === height) break;
      height = drawn.height;
    }
    if (cursor && document.activeElement === canvas) markCursor(context);
  }

  /** Where the keys are, for those who see it. */
  function markCursor(context) {
    const part = parts.find(({ name }) => name === cursor.name);
    if (!part || cursor.column >= part.columns || cursor.row >= part.rows) return;
    const [wide, high] = part.cell;
    context.lineWidth = 2;
    context.strokeStyle = ink("text");
    context.strokeRect(part.x + cursor.column * wide - 1, part.y + cursor.row * high - 1, wide + 2, high + 2);
  }

  function partAt(x, y) {
    for (const part of parts) {
      const column = Math.floor((x - part.x) / part.cell[0]), row = Math.floor((y - part.y) / part.cell[1]);
      if (column >= 0 && row >= 0 && column < part.columns && row < part.rows) return { part, column, row };
    }
    return null;
  }

  function tell(event, sure) {
    const found = partAt(event.offsetX, event.offsetY);
    if (!found) return;
    if (sure) cursor = { name: found.part.name, column: found.column, row: found.row };
    point(found.part.name, found.column, found.row, sure);
  }

  function move(event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    const part = parts.find(({ name }) => name === cursor?.name) ?? parts[0];
    if (!part) return;
    event.preventDefault();
    event.stopPropagation();
    const step = event.shiftKey ? 8 : 1;
    const column = cursor ? cursor.column + step * by[0] : 0, row = cursor ? cursor.row + step * by[1] : 0;
    cursor = { name: part.name, column: clamp(column, 0, part.columns - 1), row: clamp(row, 0, part.rows - 1) };
    point(part.name, cursor.column, cursor.row, true);
    redraw();
  }

  canvas.addEventListener("pointermove", (event) => tell(event, false));
  canvas.addEventListener("pointerleave", () => point("", 0, 0, false));
  canvas.addEventListener("click", (event) => tell(event, true));
  canvas.addEventListener("keydown", move);
  return self;
}

/** Cells of a grid, one pixel each, drawn at once: colour(column, row) gives [red, green, blue], or null for none. */
function cells(context, { x, y, cell, columns, rows }, colour) {
  const image = new ImageData(columns, rows);
  for (let row = 0, at = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, at += 4) {
      const rgb = colour(column, row);
      if (!rgb) continue;
      [image.data[at], image.data[at + 1], image.data[at + 2]] = rgb;
      image.data[at + 3] = 255;
    }
  }
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, x, y, columns * cell[0], rows * cell[1]);
}

/** Lines between the cells of a grid that differ: same(column, row, column, row) says of two neighbours. */
function borders(context, { x, y, cell, columns, rows }, same) {
  context.beginPath();
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const right = x + (column + 1) * cell[0], bottom = y + (row + 1) * cell[1];
      if (column + 1 < columns && !same(column, row, column + 1, row)) {
        context.moveTo(right, bottom - cell[1]);
        context.lineTo(right, bottom);
      }
      if (row + 1 < rows && !same(column, row, column, row + 1)) {
        context.moveTo(right - cell[0], bottom);
        context.lineTo(right, bottom);
      }
    }
  }
  context.stroke();
}

function clamp(value, low, high) {
  return Math.min(high, Math.max(low, value));
}

const inks = new Map(); // emptied where the theme changes

/** A colour of the style sheet, as the theme has it. */
function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.querySelector(`.ink-${name}`)).color);
  return inks.get(name);
}

function write(context, text, x, y, { align = "left", size = 11, colour = ink("muted"), weight = 400 } = {}) {
  context.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillStyle = colour;
  context.fillText(text, x, y);
}
