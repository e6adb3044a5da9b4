// What is in use at a step: how much each element and each word is, for one thread that is looked at.

/**
 * A USE for each: `ids` for the elements of A, B and C, `shared` for units of shared memory. `state`: the ids that
 * shared memory holds after the step; `flying`: those that are on their way there.
 */
function usesOf(trace, step, thread) {
  const state = sharedAfter(trace, step.index);
  const elements = Object.values(trace.matrices).map(({ first_id: first, rows, columns }) => first + rows * columns);
  const uses = {
    state, flying: flyingAt(trace, step.index),
    ids: new Uint8Array(Math.max(...elements)), shared: new Uint8Array(state.length),
  };
  for (const id of state) if (id >= 0) uses.ids[id] = USE.held;
  for (let part = 0; part < (step.offsets?.length ?? 0); part++) {
    const use = step.bulk ? USE.block : useOf(part, thread);
    raise(uses.ids, elementsOf(trace, step, part), use);
    raise(uses.shared, unitsOf(trace, step, part), use);
  }
  return uses;
}

function useOf(other, thread) {
  if (other === thread) return USE.lane;
  return Math.floor(other / WARP) === Math.floor(thread / WARP) ? USE.warp : USE.block;
}

function raise(uses, places, use) {
  for (const place of places) if (place >= 0 && uses[place] < use) uses[place] = use;
}

/** What was begun and has not landed after a step: an id for each unit, EMPTY where nothing is on its way. */
function flyingAt(trace, index) {
  const begun = trace.steps.slice(0, index + 1).filter((step) => step.done > index && writesShared(step));
  const flying = new Int32Array(Math.ceil(trace.sharedBytes / trace.unit)).fill(EMPTY);
  for (const step of begun) land(trace, step, flying);
  return flying;
}

/** How far along its row in memory an element is, within 128 bytes or a slice of K, -0.5 to 0.5: its shade. */
function shiftOf(trace, { array, row, column }) {
  const { element_bytes: bytes, by_columns: byColumns } = trace.matrices[array];
  const isAlongK = (array === "A") !== byColumns;
  const period = Math.min(BANKS * WORD / bytes, isAlongK ? trace.depth : Infinity);
  return period > 1 ? ((byColumns ? row : column) % period) / (period - 1) - 0.5 : 0;
}

/**
 * The wavefront of each word that lanes ask for: lanes are served in groups, and in a group the n-th distinct word of a
 * bank is in its n-th wavefront. The lanes of a group (gemm_ref/ptx/count/banks.py) are told from what was counted.
 * Returns {cells: [{lane, bank, word, wavefront}], drawn: how many wavefronts, together: lanes of a group}.
 */
function wavefrontsOf(lanes, bytes, counted) {
  const least = Math.min(WARP, BANKS * WORD / Math.max(bytes, WORD));
  const found = [least, Math.min(WARP, 2 * least)].map((together) => served(lanes, bytes, together));
  return found.find(({ drawn }) => drawn === counted) ?? found[0];
}

function served(lanes, bytes, together) {
  const places = [];
  let before = 0;
  for (let first = 0; first < WARP; first += together) {
    const words = range(0, BANKS).map(() => []);
    for (const { lane, offset } of lanes.filter(({ lane }) => lane >= first && lane < first + together)) {
      for (let word = Math.floor(offset / WORD); word * WORD < offset + bytes; word++) {
        const bank = word % BANKS;
        if (!words[bank].includes(word)) words[bank].push(word);
        places.push({ lane, bank, word, wavefront: before + words[bank].indexOf(word) });
      }
    }
    before += Math.max(...words.map((of) => of.length));
  }
  return { cells: places, drawn: before, together };
}
