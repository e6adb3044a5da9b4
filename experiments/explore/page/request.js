// One warp's request: its 32 lanes against the 32 banks of shared memory, or against the 32-byte sectors it touches.
const SIDE = 46, HEAD = 20; // pixels beside and above the grid

/** Draw the request of a step; returns what `picture` wants. lane: the one that is looked at. */
function drawRequest(context, width, { trace, step, warp, lane, colours }) {
  if (step.bulk) return drawChunks(context, width, { trace, step, colours });
  const lanes = requestOf(trace, step, warp);
  const columns = step.space === "shared" ? BANKS : Math.max(1, sectorsOf(lanes).length);
  const wide = Math.min((width - SIDE - 1) / (step.space === "shared" ? BANKS : Math.max(8, columns)), 44);
  const grid = { name: "request", x: SIDE, y: HEAD, cell: [wide, clamp(wide, 8, 9.5)], columns, rows: WARP };
  context.fillStyle = ink("empty");
  context.fillRect(grid.x, grid.y, columns * wide, WARP * grid.cell[1]);
  context.fillStyle = ink("line");
  context.fillRect(grid.x, grid.y + lane * grid.cell[1], columns * wide, grid.cell[1]);
  const [counted] = countOf(trace, step, warp);
  if (step.space === "shared") drawBanks(context, grid, { step, lanes, counted, colours });
  else if (lanes.length) drawSectors(context, grid, { step, lanes, colours });
  labelLanes(context, grid, lane);
  return { parts: [grid], height: grid.y + WARP * grid.cell[1] + 4 };
}

function drawBanks(context, grid, { step, lanes, counted, colours }) {
  const { cells: places, drawn } = wavefrontsOf(lanes, step.bytes, counted);
  for (const { lane, bank, wavefront } of places) {
    const x = grid.x + bank * grid.cell[0], y = grid.y + lane * grid.cell[1];
    const colour = colours.wavefront(wavefront, drawn);
    context.fillStyle = css(colour);
    context.fillRect(x + 0.5, y + 0.5, grid.cell[0] - 1, grid.cell[1] - 1);
    if (drawn > 1 && grid.cell[0] >= 11 && drawn <= 99) {
      const text = { align: "center", size: 7.5, colour: readable(colour) };
      write(context, String(wavefront + 1), x + grid.cell[0] / 2, y + grid.cell[1] / 2 + 0.5, text);
    }
  }
  write(context, "bank", grid.x - 6, HEAD - 10, { align: "right", size: 10 });
  for (let bank = 0; bank < BANKS; bank += grid.cell[0] < 11 ? 4 : grid.cell[0] < 15 ? 2 : 1) {
    write(context, String(bank), grid.x + (bank + 0.5) * grid.cell[0], HEAD - 10, { align: "center", size: 10 });
  }
}

/** The sectors that lanes touch, in order. */
function sectorsOf(lanes) {
  return [...new Set(lanes.map(({ offset }) => Math.floor(offset / SECTOR)))].sort((a, b) => a - b);
}

function drawSectors(context, grid, { step, lanes, colours }) {
  const sectors = sectorsOf(lanes), byte = grid.cell[0] / SECTOR;
  for (const { lane, offset } of lanes) {
    const column = sectors.indexOf(Math.floor(offset / SECTOR)), x = grid.x + column * grid.cell[0];
    const y = grid.y + lane * grid.cell[1];
    context.fillStyle = css(colours.element(step.array, USE.held));
    context.fillRect(x + 0.5, y + 0.5, grid.cell[0] - 1, grid.cell[1] - 1);
    context.fillStyle = css(colours.element(step.array, USE.warp));
    context.fillRect(x + (offset % SECTOR) * byte, y + 0.5, Math.max(2, step.bytes * byte), grid.cell[1] - 1);
  }
  context.strokeStyle = ink("paper");
  context.lineWidth = 1;
  for (let i = 1; i < sectors.length; i++) {
    const gap = sectors[i] !== sectors[i - 1] + 1; // not neighbours in memory
    context.lineWidth = gap ? 2 : 0.5;
    context.strokeRect(grid.x + i * grid.cell[0], grid.y, 0, WARP * grid.cell[1]);
  }
  write(context, "sector", grid.x - 6, HEAD - 10, { align: "right", size: 10 });
  const every = Math.ceil(24 / grid.cell[0]);
  for (let i = 0; i < sectors.length; i += every) {
    write(context, String(sectors[i]), grid.x + (i + 0.5) * grid.cell[0], HEAD - 10, { align: "center", size: 10 });
  }
}

function labelLanes(context, grid, lane) {
  for (let row = 0; row < WARP; row += 4) {
    const shown = { align: "right", size: 10 };
    write(context, row ? String(row) : "lane 0", grid.x - 6, grid.y + (row + 0.5) * grid.cell[1], shown);
  }
  context.strokeStyle = ink("text");
  context.lineWidth = 1;
  context.strokeRect(grid.x, grid.y + lane * grid.cell[1], grid.columns * grid.cell[0], grid.cell[1]);
}

/** The first rows of a box in shared memory, 8 chunks of 16 bytes each, with the number each chunk has in its row. */
function drawChunks(context, width, { trace, step, colours }) {
  const row = BANKS * WORD, parts = [...step.offsets.keys()], chunks = row / step.bytes;
  const first = Math.floor(Math.min(...parts.map((part) => offsetOf(step, part))) / row);
  const wide = (width - SIDE - 1) / chunks;
  const grid = { name: "chunks", x: SIDE, y: HEAD, cell: [wide, 26], columns: chunks, rows: 8 };
  for (const part of parts) {
    const offset = offsetOf(step, part), line = Math.floor(offset / row) - first;
    const place = placeOf(trace, elementsOf(trace, step, part)[0] ?? NOWHERE);
    if (line >= grid.rows || !place) continue;
    const { element_bytes: bytes, by_columns: byColumns } = trace.matrices[place.array];
    const x = grid.x + (offset % row) / step.bytes * wide, y = grid.y + line * grid.cell[1];
    const colour = colours.element(place.array, USE.block, shiftOf(trace, place));
    const chunk = Math.floor(((byColumns ? place.row : place.column) * bytes % row) / step.bytes);
    context.fillStyle = css(colour);
    context.fillRect(x + 0.5, y + 0.5, wide - 1, grid.cell[1] - 1);
    const text = { align: "center", size: 11, colour: readable(colour) };
    write(context, String(chunk), x + wide / 2, y + grid.cell[1] / 2, text);
  }
  write(context, "chunk", grid.x - 6, HEAD - 10, { align: "right", size: 10 });
  for (let one = 0; one < chunks; one++) {
    write(context, String(one), grid.x + (one + 0.5) * wide, HEAD - 10, { align: "center", size: 10 });
  }
  for (let line = 0; line < grid.rows; line++) {
    const y = grid.y + (line + 0.5) * grid.cell[1];
    write(context, String((first + line) * row), grid.x - 6, y, { align: "right", size: 10 });
  }
  return { parts: [], height: grid.y + grid.rows * grid.cell[1] + 4 };
}

/** The 32 lanes of the warp as a strip; a lane that takes part in the step is filled. Returns what `picture` wants. */
function drawLanes(context, width, { trace, step, warp, lane, colours }) {
  const wide = Math.min(width / WARP, 22), high = 20;
  const part = { name: "lanes", x: 0, y: 0, cell: [wide, high], columns: WARP, rows: 1 };
  const active = new Set(requestOf(trace, step, warp).map((one) => one.lane)), subject = step.subject;
  for (let one = 0; one < WARP; one++) {
    const use = one === lane ? USE.lane : active.has(one) ? USE.block : USE.idle;
    const colour = colours.element(one === lane || active.has(one) ? subject : "", use);
    context.fillStyle = css(colour);
    context.fillRect(one * wide + 0.5, 0.5, wide - 1, high - 1);
    if (one % (wide < 14 ? 4 : 1) === 0) {
      const text = { align: "center", size: 9, colour: readable(colour) };
      write(context, String(one), (one + 0.5) * wide, high / 2 + 0.5, text);
    }
  }
  return { parts: [part], height: high };
}
