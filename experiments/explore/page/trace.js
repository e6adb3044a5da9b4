// What a trace says (experiments/explore/traces/record.py), as functions of it alone: nothing here draws or counts anew.
const WARP = 32, BANKS = 32, WORD = 4, SECTOR = 32;
const NOWHERE = -1; // of places: none. Of ids: a value that is no element of A, B or C
const EMPTY = -2; // of ids: nothing was written there

/** A trace as `page.py` stores it: its fields as JSON, in which an array says which numbers behind it are its own. */
async function readTrace(base64) {
  const bytes = await inflate(base64), start = 4 + new DataView(bytes.buffer).getInt32(0, true);
  const numbers = new Int32Array(bytes.buffer, start); // each the difference to the one before
  for (let at = 1; at < numbers.length; at++) numbers[at] += numbers[at - 1];
  const whole = (_, value) => (Number.isInteger(value?.at) ? numbers.subarray(value.at, value.at + value.size) : value);
  return JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)), whole);
}

/** A trace, ready to be asked. */
async function openTrace(base64) {
  const trace = await readTrace(base64), [launch] = trace.launches;
  const threads = launch.block.reduce((product, edge) => product * edge, 1);
  const inSpace = (name) => trace.arrays.filter(({ space }) => space === name);
  const matrices = Object.fromEntries(inSpace("global").map((one) => [one.name, one]));
  const isShown = (tile) => ["block", "row", "column"].every((name) => tile[name] === trace[name]);
  const opened = {
    ...trace, threads, matrices,
    tile: trace.tiles.find(isShown),
    warps: Math.ceil(threads / WARP), sharedBytes: launch.shared_bytes, shared: inSpace("shared"),
    sums: matrices.C ? "C" : "partials", // where its sums go
    unit: Math.min(WORD, matrices.A.element_bytes, matrices.B.element_bytes), // bytes that one id is kept for
    kept: { at: NOWHERE, state: null }, // what shared memory holds, as far as it was played
  };
  opened.steps = stepsOf(opened, trace.steps);
  for (const step of opened.steps) step.subject = subjectOf(opened, step);
  opened.groups = groupsOf(opened.steps);
  return opened;
}

/** The steps as objects: what their operation says, and their own numbers. */
function stepsOf(trace, columns) {
  return Array.from(columns.operation, (_, index) => {
    const own = Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[index]]));
    const operation = trace.operations[own.operation];
    return {
      ...operation, ...own, index,
      bulk: own.thread !== NOWHERE, // pieces that a unit moves, not lanes that access
      offsets: own.pattern === NOWHERE ? null : trace.patterns[own.pattern],
      ids: own.origin === NOWHERE ? null : trace.origins[own.origin],
    };
  });
}

/** Runs of steps of one source line, each {first, last}, in order; every step gets the number of its run. */
function groupsOf(steps) {
  const groups = [];
  for (const step of steps) {
    const last = groups.at(-1), before = last && steps[last.last];
    const goesOn = before && ["line", "slice", "kind", "space"].every((name) => before[name] === step[name]);
    if (goesOn) last.last = step.index;
    else groups.push({ first: step.index, last: step.index });
    step.group = groups.length - 1;
  }
  return groups;
}

/** The byte at which a thread's part of a step (a piece of a bulk step) begins; NOWHERE if it takes no part. */
function offsetOf(step, thread) {
  const offset = step.offsets?.[thread] ?? NOWHERE;
  return offset < 0 ? NOWHERE : step.base + offset;
}

/** Where an element is: {array, row, column}; null for what is none. */
function placeOf(trace, id) {
  if (id < 0) return null;
  for (const { name: array, first_id: first, rows, columns } of Object.values(trace.matrices)) {
    const at = id - first, isInside = first >= 0 && at >= 0 && at < rows * columns;
    if (isInside) return { array, row: Math.floor(at / columns), column: at % columns };
  }
  return null;
}

/** The id of an element, by the array's name. */
function idOf(trace, name, row, column) {
  const array = trace.matrices[name];
  const inside = row >= 0 && column >= 0 && row < array.rows && column < array.columns;
  return inside ? array.first_id + row * array.columns + column : NOWHERE;
}

/** What shared memory holds once the steps up to and with `index` are done: an id for each unit. */
function sharedAfter(trace, index) {
  const kept = trace.kept;
  if (!kept.state || kept.at > index) {
    kept.state = new Int32Array(Math.ceil(trace.sharedBytes / trace.unit)).fill(EMPTY);
    kept.at = NOWHERE;
  }
  for (let at = kept.at + 1; at <= index; at++) {
    for (const step of landingAt(trace, at)) land(trace, step, kept.state);
  }
  kept.at = index;
  return kept.state;
}

/** The steps that write to shared memory and are done at step `index`. */
function landingAt(trace, index) {
  if (!trace.landings) {
    trace.landings = trace.steps.map(() => []);
    for (const step of trace.steps.filter(writesShared)) trace.landings[Math.max(step.index, step.done)].push(step);
  }
  return trace.landings[index];
}

function writesShared({ ids, space, kind }) {
  return ids !== null && space === "shared" && ["store", "async store", "bulk load"].includes(kind);
}

/** Write what a step writes: an id to each unit. */
function land(trace, step, state) {
  const units = Math.max(1, step.bytes / trace.unit);
  for (let part = 0; part < step.offsets.length; part++) {
    const offset = offsetOf(step, part), first = Math.floor(offset / trace.unit);
    for (let i = 0; offset >= 0 && i < units; i++) state[first + i] = writtenId(trace, step, part, i);
  }
}

/** The id of the i-th unit that a part of a step writes. */
function writtenId(trace, step, part, i) {
  const each = step.ids.length / step.offsets.length, units = Math.max(1, step.bytes / trace.unit);
  const origin = step.ids[part * each + Math.floor(i * each / units)];
  return origin < 0 ? NOWHERE : step.first_id + origin;
}

/** The units of shared memory that a thread, or a piece, touches in a step. */
function unitsOf(trace, step, part) {
  const offset = offsetOf(step, part);
  if (offset < 0 || step.space !== "shared") return [];
  return range(Math.floor(offset / trace.unit), Math.max(1, step.bytes / trace.unit));
}

/** The ids of the elements that a thread, or a piece, touches in a step. */
function elementsOf(trace, step, part) {
  const offset = offsetOf(step, part);
  if (offset < 0) return [];
  if (step.space === "shared") {
    if (writesShared(step)) return unitsOf(trace, step, part).map((_, i) => writtenId(trace, step, part, i));
    const state = sharedAfter(trace, step.index);
    return unitsOf(trace, step, part).map((unit) => state[unit]);
  }
  const array = trace.matrices[step.array];
  if (!array || array.first_id < 0) return [];
  const first = Math.floor(offset / array.element_bytes), each = Math.max(1, step.bytes / array.element_bytes);
  return range(first, each).map((at) => array.by_columns
    ? idOf(trace, array.name, at % array.rows, Math.floor(at / array.rows))
    : idOf(trace, array.name, Math.floor(at / array.columns), at % array.columns));
}

/** The array of A, B and C that a step is about: that of the first element that it touches, or its name. */
function subjectOf(trace, step) {
  if (trace.matrices[step.array]) return step.array;
  for (let part = 0; part < (step.offsets?.length ?? 0); part++) {
    const known = elementsOf(trace, step, part).find((id) => id >= 0);
    if (known !== undefined) return placeOf(trace, known)?.array ?? "";
  }
  return "";
}

/** The warp's lanes in a step, those alone that take part: {lane, thread, offset}. */
function requestOf(trace, step, warp) {
  if (step.bulk) return [];
  return range(warp * WARP, Math.min(WARP, trace.threads - warp * WARP))
    .map((thread) => ({ lane: thread % WARP, thread, offset: offsetOf(step, thread) }))
    .filter(({ offset }) => offset >= 0);
}

/** What the reference GPU counted for a warp: [sectors or wavefronts, ideal]; zeros where it asks for nothing. */
function countOf(trace, step, warp) {
  const first = (step.counts * trace.warps + warp) * 2;
  return step.counts === NOWHERE ? [0, 0] : [trace.counts[first], trace.counts[first + 1]];
}

/** The thread that owns an element of the block's tile of C; NOWHERE where that is not known. */
function ownerOf(trace, row, column) {
  const owner = trace.owners[row * trace.tile.columns + column];
  return owner === trace.threads ? NOWHERE : owner;
}

/** The blocks that store to an element of C: their linear numbers. */
function blocksAt(trace, row, column) {
  return trace.tiles.filter((tile) => row >= tile.row && row < tile.row + tile.rows
    && column >= tile.column && column < tile.column + tile.columns).map(({ block }) => block);
}

function range(first, count) {
  return Array.from({ length: count }, (_, i) => first + i);
}
