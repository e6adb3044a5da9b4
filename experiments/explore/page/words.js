// Sentences about a step, for readers who see it for the first time.
const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** An element as one writes it: A[3, 17]. */
function nameOf(trace, id) {
  const place = placeOf(trace, id);
  if (place) return `${place.array}[${place.row}, ${place.column}]`;
  return id === EMPTY ? "nothing yet" : "a value that is no element";
}

/** The first and last of some elements: A[3, 0] to A[3, 3]. */
function spanOf(trace, ids) {
  if (!ids.length) return "";
  const [first, last] = [ids[0], ids.at(-1)].map((id) => nameOf(trace, id));
  return first === last ? first : `${first} to ${last}`;
}

/** The name of the array in shared memory that a byte is in, or "shared memory". */
function sharedName(trace, offset) {
  return trace.shared.find(({ offset: at, bytes }) => offset >= at && offset < at + bytes)?.name || "shared memory";
}

/** An mbarrier, of 8 bytes, as the source writes it where its array has a name. */
function mbarrierName(trace, byte) {
  const isOwn = ({ array, kind }) => kind === "mbarrier" || array !== sharedName(trace, byte);
  const array = trace.operations.every(isOwn) && trace.shared.find(({ name }) => name === sharedName(trace, byte));
  return array ? `the mbarrier ${array.name}[${(byte - array.offset) / 8}]` : `the mbarrier at byte ${byte}`;
}

/** What a step does, in a sentence without its end. */
function deedOf(trace, step) {
  if (step.bulk) return bulkDeedOf(trace, step);
  const subject = step.subject || step.array, bytes = count(step.bytes, "byte"), what = subject ? ` of ${subject}` : "";
  const active = range(0, trace.threads).filter((thread) => offsetOf(step, thread) >= 0).length;
  const who = active === trace.threads ? "each thread" : active === 1 ? "one thread" : `each of ${active} threads`;
  switch (`${step.kind} ${step.space}`) {
    case "load global": return `From global memory to registers: ${who} loads ${bytes}${what}`;
    case "store global": return `From registers to global memory: ${who} stores ${bytes}${what}`;
    case "async load global": return `Asynchronous copy: ${who} reads ${bytes}${what} in global memory`;
    case "async store shared": return `Asynchronous copy: ${bytes}${what} per thread will land here in shared memory`;
    case "store shared": return `From registers to shared memory: ${who} stores ${bytes}${what}`;
    case "load shared": return `From shared memory to registers: ${who} reads ${bytes}${what}`;
    default: return orderOf(step) ?? `${step.op}: ${bytes}${what}`;
  }
}

// What a part of an mbarrier's instruction says that is done with it; the first that is found.
const MEETINGS = [
  ["init", "is initialised"], ["expect_tx", "is told how many bytes will come"], ["wait", "is waited for"],
  ["", "is arrived at"],
];

/** What a step does that moves nothing but orders others, or computes; undefined for another. */
function orderOf({ kind, op, times }) {
  const [, meet] = MEETINGS.find(([part]) => op.includes(part));
  return {
    barrier: "Barrier: threads wait here until all have arrived",
    mbarrier: `An mbarrier ${meet}`,
    wait: "Wait until what was begun is done",
    commit: "The copies or products begun so far become one group, to be waited for together",
    fence: "Fence: what was written before is seen by what follows",
    multiply: `Multiply and add in registers${times > 1 ? `, ${times.toLocaleString("en")} instructions` : ""}`,
  }[kind];
}

function bulkDeedOf(trace, step) {
  const total = step.bytes * step.offsets.length, box = boxOf(trace, step) || step.subject || "bytes";
  const size = total % 1024 ? count(total, "byte") : `${(total / 1024).toLocaleString("en")} KiB`;
  const who = step.block === trace.block ? `thread ${step.thread}` : `thread ${step.thread} of block ${step.block}`;
  const barrier = step.mbarrier === NOWHERE ? "" : `; ${mbarrierName(trace, step.mbarrier)} counts its bytes`;
  if (step.kind === "operand") return `wgmma reads ${box}, ${size}, straight from shared memory, without registers`;
  if (step.kind === "bulk load") return `TMA: ${who} has the box ${box}, ${size}, copied into shared memory${barrier}`;
  return `TMA: ${who} has the box ${box}, ${size}, copied from shared memory to C`;
}

/** The box of elements that a bulk step moves: A[0 to 63, 0 to 31]; nothing where they are no box of one matrix. */
function boxOf(trace, step) {
  const places = step.offsets.length ? [...step.offsets.keys()].flatMap((part) => elementsOf(trace, step, part)) : [];
  const found = places.map((id) => placeOf(trace, id)).filter(Boolean);
  if (!found.length) return "";
  const span = (name) => found.reduce(
    ([low, high], { [name]: at }) => [Math.min(low, at), Math.max(high, at)], [Infinity, -1]).join(" to ");
  return `${found[0].array}[${span("row")}, ${span("column")}]`;
}

/** What a warp's request costs: {number, unit, text, wasted}; null where the warp asks for nothing. */
function costOf(trace, step, warp) {
  const [number, ideal] = countOf(trace, step, warp);
  if (!number) return null;
  if (step.space === "shared") {
    const text = number === ideal ? "no bank conflict" : `${ideal} would do`;
    return { number, unit: number === 1 ? "wavefront" : "wavefronts", text, wasted: number > ideal };
  }
  const asked = bytesOf(requestOf(trace, step, warp), step.bytes), least = Math.ceil(asked / SECTOR);
  const used = asked === number * SECTOR ? "all their bytes are used" : `${asked} of ${number * SECTOR} bytes are used`;
  const text = number === least ? used : `${least} would do: ${used}`;
  return { number, unit: number === 1 ? "sector" : "sectors", text, wasted: number > least };
}

/** The different bytes that lanes ask for. */
function bytesOf(lanes, bytes) {
  return new Set(lanes.map(({ offset }) => offset)).size * bytes;
}

/** Why a request takes as many wavefronts: what the fullest bank is asked for. */
function whyOf(step, lanes, counted) {
  const { cells: places, drawn, together } = wavefrontsOf(lanes, step.bytes, counted);
  const groups = together < WARP ? ` ${step.bytes} bytes per lane are served ${together} lanes at a time.` : "";
  const lines = `${count(counted - drawn, "wavefront")} more for the lines of global memory that the copy reads.`;
  const more = counted > drawn ? ` ${lines}` : "";
  const words = new Set(places.map(({ word }) => word)).size;
  if (words === 1) return `All lanes ask for one word: a broadcast.${groups}${more}`;
  const wordsOf = (bank) => new Set(places.filter((place) => place.bank === bank).map(({ word }) => word)).size;
  const asked = range(0, BANKS).map(wordsOf), fullest = Math.max(...asked), bank = asked.indexOf(fullest);
  const no = words < places.length ? "Lanes share words, and no" : "No";
  if (fullest === 1) return `${no} two words are in one bank.${groups}${more}`;
  return `Bank ${bank} is asked for ${count(fullest, "word")}; a wavefront moves one word per bank.${groups}${more}`;
}
