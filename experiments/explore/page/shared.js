// Shared memory as rows of 32 banks: each cell is a word of 4 bytes, coloured by the element that it holds.
const ROWS = 64; // rows that are shown at a time: 8 KiB
const TALL = 280; // pixels that they take together, more or less
const LEFT = 46; // pixels beside the rows, for their addresses

/** The first row shown: that of the words in use; `from` where none is, or none of data. */
function firstRow(trace, step, uses, from) {
  const rows = Math.ceil(trace.sharedBytes / (BANKS * WORD)), each = BANKS * WORD / trace.unit;
  if (rows <= ROWS) return 0;
  const strongest = uses.shared.reduce((most, use) => Math.max(most, use), 0);
  if (!strongest || step.kind === "mbarrier") return Math.min(from, rows - ROWS);
  const first = Math.floor(uses.shared.indexOf(strongest) / each);
  if (first >= from && first < from + ROWS) return Math.min(from, rows - ROWS);
  return clamp(first - (first % 8), 0, rows - ROWS);
}

/** Draw the rows from `first` on; returns what `picture` wants. */
function drawShared(context, width, { trace, uses, colours, first }) {
  const rows = clamp(Math.ceil(trace.sharedBytes / (BANKS * WORD)) - first, 1, ROWS);
  const wide = (width - LEFT - 1) / BANKS, high = clamp(TALL / rows, 4, Math.min(wide, 12));
  const per = WORD / trace.unit; // units of a word
  const grid = { name: "shared", x: LEFT, y: 30, cell: [wide, high], columns: BANKS, rows };
  const fine = { ...grid, cell: [wide / per, high], columns: BANKS * per };
  const unitAt = (column, row) => (first + row) * BANKS * per + column;
  context.fillStyle = ink("empty");
  context.fillRect(grid.x, grid.y, BANKS * wide, rows * high);
  cells(context, fine, (column, row) => wordColour(trace, uses, colours, unitAt(column, row)));
  outline(context, fine, (column, row) => uses.shared[unitAt(column, row)] >= USE.warp);
  context.strokeStyle = ink("paper");
  context.lineWidth = 0.5;
  for (let bank = 1; bank < BANKS; bank++) context.strokeRect(grid.x + bank * wide, grid.y, 0, rows * high);
  labelShared(context, grid, trace, first);
  return { parts: [grid], height: grid.y + rows * high + 2 };
}

function wordColour(trace, uses, colours, unit) {
  const landed = uses.state[unit], coming = uses.flying[unit], use = uses.shared[unit];
  if (landed === undefined) return null;
  if (coming !== EMPTY) {
    const place = placeOf(trace, coming);
    return colours.element(place?.array ?? "", Math.max(USE.idle, use), place ? shiftOf(trace, place) : 0);
  }
  if (landed === EMPTY && !use) return null;
  const place = placeOf(trace, landed);
  return colours.element(place?.array ?? "", Math.max(USE.held, use), place ? shiftOf(trace, place) : 0);
}

/** A line around cells that are marked. */
function outline(context, grid, marked) {
  context.strokeStyle = ink("text");
  context.lineWidth = 1;
  const inside = (column, row) =>
    column >= 0 && row >= 0 && column < grid.columns && row < grid.rows && marked(column, row);
  context.beginPath();
  for (let row = 0; row < grid.rows; row++) {
    for (let column = 0; column < grid.columns; column++) {
      if (!inside(column, row)) continue;
      const x = grid.x + column * grid.cell[0], y = grid.y + row * grid.cell[1];
      const side = (by, to, ...line) => {
        if (inside(column + by, row + to)) return;
        context.moveTo(line[0], line[1]);
        context.lineTo(line[2], line[3]);
      };
      const right = x + grid.cell[0], bottom = y + grid.cell[1];
      side(-1, 0, x, y, x, bottom);
      side(1, 0, right, y, right, bottom);
      side(0, -1, x, y, right, y);
      side(0, 1, x, bottom, right, bottom);
    }
  }
  context.stroke();
}

function labelShared(context, grid, trace, first) {
  write(context, "bank", grid.x - 6, 20, { align: "right", size: 10 });
  for (let bank = 0; bank < BANKS; bank += grid.cell[0] < 11 ? 4 : grid.cell[0] < 15 ? 2 : 1) {
    write(context, String(bank), grid.x + (bank + 0.5) * grid.cell[0], 20, { align: "center", size: 10 });
  }
  const every = Math.ceil(14 / grid.cell[1] / 4) * 4;
  for (let row = 0; row < grid.rows; row += every) {
    const address = String((first + row) * BANKS * WORD);
    write(context, address, grid.x - 6, grid.y + (row + 0.5) * grid.cell[1], { align: "right", size: 10 });
  }
  for (const array of trace.shared) labelArray(context, grid, array, first);
}

/** A line where an array begins, and its name where it has a few rows: the first one's above, others' within. */
function labelArray(context, grid, { name, offset, bytes }, first) {
  const row = offset / (BANKS * WORD) - first, column = (row - Math.floor(row)) * BANKS;
  const isLong = bytes >= 4 * BANKS * WORD, text = { size: 11, weight: 600, colour: ink("text") };
  if (isLong && row <= 1 && row + bytes / (BANKS * WORD) > 0) write(context, name, grid.x, 6, text);
  if (row <= 0 || row >= grid.rows) return;
  const x = grid.x + column * grid.cell[0], right = grid.x + BANKS * grid.cell[0];
  const y = grid.y + Math.floor(row) * grid.cell[1];
  context.strokeStyle = ink("text");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(grid.x, y + (column ? grid.cell[1] : 0));
  if (column) [[x, y + grid.cell[1]], [x, y]].forEach(([to, at]) => context.lineTo(to, at));
  context.lineTo(right, y);
  context.stroke();
  if (!isLong || row <= 1 || row + 4 > grid.rows) return;
  context.font = `600 11px ${getComputedStyle(document.body).fontFamily}`;
  context.fillStyle = ink("paper");
  context.fillRect(grid.x, y + 1, context.measureText(name).width + 8, 15);
  write(context, name, grid.x + 4, y + 9, text);
}
