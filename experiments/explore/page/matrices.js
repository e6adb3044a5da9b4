// The block's rows of A, its columns of B and its tile of C, as they are multiplied: B above C, A to its left.
// The corner between them shows the whole problem, with the block's part in it.
const TITLE = 16; // pixels of a line of text
const GAP = 22; // pixels between the pictures
const NARROWEST = 92, TALLEST = 430; // pixels of A's width at least, of C's height at most

/** Where the three are at a width: {cell, A, B, C, corner, height}. Along K cells may be longer than along M and N. */
function layMatrices(trace, width) {
  const { tile } = trace, depth = trace.k;
  const room = width - GAP;
  // Along K cells are squeezed or stretched, so that C has the room that it needs and A and B can be seen.
  const along = clamp(room / (depth + tile.columns), NARROWEST / depth, 0.42 * room / depth);
  const side = Math.min((room - depth * along) / tile.columns, TALLEST / tile.rows);
  const left = depth * along + GAP, top = TITLE + depth * along + GAP;
  return {
    A: { name: "A", x: 0, y: top, cell: [along, side], columns: depth, rows: tile.rows },
    B: { name: "B", x: left, y: TITLE, cell: [side, along], columns: tile.columns, rows: depth },
    C: { name: "C", x: left, y: top, cell: [side, side], columns: tile.columns, rows: tile.rows },
    corner: { x: 0, y: TITLE, width: depth * along, height: depth * along },
    height: top + tile.rows * side + 2,
  };
}

/** Draw them; returns what `picture` wants. cursor: an element of C that is pointed at, or null. */
function drawMatrices(context, width, { trace, uses, thread, colours }) {
  const place = layMatrices(trace, width), warp = Math.floor(thread / WARP), { tile } = trace;
  const element = (array, row, column) =>
    colours.element(array, uses.ids[idOf(trace, array, row, column)] ?? USE.idle,
      shiftOf(trace, { array, row, column }));
  cells(context, place.A, (column, row) => element("A", tile.row + row, column));
  cells(context, place.B, (column, row) => element("B", row, tile.column + column));
  drawTile(context, place.C, { trace, uses, thread, warp, colours });
  drawCorner(context, place.corner, trace, colours);
  label(context, place, trace);
  drawSlices(context, place, trace);
  return { parts: [place.C, place.A, place.B], height: place.height };
}

function drawTile(context, part, { trace, uses, thread, warp, colours }) {
  const { tile } = trace;
  const owner = (column, row) => ownerOf(trace, row, column), lanes = part.cell[0] >= 2.4;
  cells(context, part, (column, row) => {
    const own = owner(column, row), use = uses.ids[idOf(trace, trace.sums, tile.row + row, tile.column + column)];
    if (own < 0) return use ? colours.element("C", use) : null;
    if (own === thread) return colours.element("C", USE.lane);
    return use >= USE.block && Math.floor(own / WARP) !== warp
      ? colours.element("C", use) : colours.warp(Math.floor(own / WARP), Math.floor(own / WARP) === warp);
  });
  const warpAt = (column, row) => Math.floor(owner(column, row) / WARP);
  context.lineWidth = 1;
  if (lanes) {
    context.strokeStyle = css(colours.dark ? [255, 255, 255] : [0, 0, 0], 0.16);
    const isOther = (column, row) => warpAt(column, row) !== warp;
    borders(context, part, (a, b, c, d) => (isOther(a, b) && isOther(c, d)) || owner(a, b) === owner(c, d));
  }
  context.strokeStyle = css(colours.dark ? [255, 255, 255] : [0, 0, 0], 0.34);
  borders(context, part, (a, b, c, d) => warpAt(a, b) === warpAt(c, d));
  frame(context, part);
  nameWarps(context, part, warpAt, warp, colours);
}

/** The number of each warp in the first of its fields that has room for it. */
function nameWarps(context, part, warpAt, chosen, colours) {
  const named = new Set([NOWHERE]), run = (from, cell, most, at) => {
    let length = 1;
    while (from + length < most && at(from + length) === at(from)) length++;
    return length * cell;
  };
  for (let row = 0; row < part.rows; row++) {
    for (let column = 0; column < part.columns; column++) {
      const warp = warpAt(column, row);
      if (named.has(warp)) continue;
      named.add(warp);
      const wide = run(column, part.cell[0], part.columns, (at) => warpAt(at, row));
      const high = run(row, part.cell[1], part.rows, (at) => warpAt(column, at));
      if (wide < 44 || high < 13) continue;
      const place = [part.x + column * part.cell[0] + wide / 2, part.y + row * part.cell[1] + high / 2];
      const colour = readable(colours.warp(warp, warp === chosen));
      write(context, `warp ${warp}`, ...place, { align: "center", size: 10, colour });
    }
  }
}

/** The whole problem, small: what of A, B and C the block is about. */
function drawCorner(context, box, trace, colours) {
  const { m, n, k, tile } = trace, gap = 5;
  const size = Math.min(box.width - 8, box.height - 8, 190), scale = (size - gap) / (k + Math.max(m, n));
  if (size < 60) return;
  const left = box.x, top = box.y, x = left + k * scale + gap, y = top + k * scale + gap;
  const fill = (array, use, ...where) => {
    context.fillStyle = css(colours.element(array, use));
    context.fillRect(...where.map((value, i) => (i < 2 ? value : Math.max(1, value))));
  };
  fill("A", USE.idle, left, y, k * scale, m * scale);
  fill("B", USE.idle, x, top, n * scale, k * scale);
  fill("C", USE.idle, x, y, n * scale, m * scale);
  fill("A", USE.block, left, y + tile.row * scale, k * scale, tile.rows * scale);
  fill("B", USE.block, x + tile.column * scale, top, tile.columns * scale, k * scale);
  fill("C", USE.block, x + tile.column * scale, y + tile.row * scale, tile.columns * scale, tile.rows * scale);
  context.strokeStyle = css(colours.dark ? [255, 255, 255] : [0, 0, 0], 0.28);
  context.lineWidth = 1;
  for (const { row, column, rows, columns } of trace.tiles) {
    context.strokeRect(x + column * scale, y + row * scale, columns * scale, rows * scale);
  }
}

function label(context, place, trace) {
  const { tile } = trace, size = 11;
  const B = `B, columns ${tile.column} to ${tile.column + tile.columns - 1}`;
  write(context, B, place.B.x, 6, { size });
  write(context, `A, rows ${tile.row} to ${tile.row + tile.rows - 1}`, place.A.x, place.A.y - 10, { size });
  write(context, "C, this block's tile", place.C.x, place.C.y - 10, { size });
  if (place.corner.width > 80) write(context, "the whole problem", 0, 6, { size });
}

/** Lines between the slices of K. */
function drawSlices(context, place, trace) {
  context.strokeStyle = ink("line");
  context.lineWidth = 1;
  frame(context, place.A);
  frame(context, place.B);
  for (let k = trace.depth; k < place.A.columns; k += trace.depth) {
    const x = place.A.x + k * place.A.cell[0], y = place.B.y + k * place.B.cell[1];
    context.strokeRect(x, place.A.y, 0, place.A.rows * place.A.cell[1]);
    context.strokeRect(place.B.x, y, place.B.columns * place.B.cell[0], 0);
  }
}

function frame(context, { x, y, cell, columns, rows }) {
  context.strokeRect(x, y, columns * cell[0], rows * cell[1]);
}
