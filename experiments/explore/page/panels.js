// What the page says in words beside its pictures: the kernel, the step, the request, and what is pointed at.

/** All that changes with the kernel alone. */
function showKernel(kernel, trace, source) {
  const about = INDEX.rungs[kernel.rung];
  document.title = `${kernel.rung} ${about.title}, ${INDEX.dialects[kernel.dialect]}: inside a GEMM kernel`;
  $("#title").textContent = about.title;
  $("#number").textContent = kernel.rung;
  $("#idea").textContent = `${about.idea.replace(/^[a-z]+(?= )/, (word) => word[0].toUpperCase() + word.slice(1))}.`;
  const same = INDEX.kernels.filter(({ rung }) => rung === kernel.rung);
  const dialects = Object.keys(INDEX.dialects).filter((name) => same.some(({ dialect }) => dialect === name));
  links($("#dialects"), dialects, kernel.dialect,
    (dialect) => [INDEX.dialects[dialect], nearestKernel(same, { ...kernel, dialect })]);
  const variants = same.filter(({ dialect }) => dialect === kernel.dialect).map(({ variant }) => variant);
  links($("#variants"), variants, kernel.variant, (variant) => [variant, nearestKernel(same, { ...kernel, variant })]);
  for (const link of document.querySelectorAll("#rungs a")) {
    const near = nearestKernel(INDEX.kernels, { rung: link.dataset.rung, dialect: kernel.dialect });
    link.hash = `#${near.rung}-${near.dialect}-${near.variant}`;
    if (link.dataset.rung === kernel.rung) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  $("#path").textContent = trace.file;
  $("#code").innerHTML = source;
  const lines = new Set(trace.steps.map(({ line }) => line));
  [...$("#code").children].forEach((line, i) => {
    line.dataset.line = i + 1;
    line.classList.toggle("steps", lines.has(i + 1));
    const [share, what] = kernel.time?.lines[i + 1] ?? [];
    if (!share) return;
    Object.assign(line, { title: what }).dataset.time = share;
    line.style.setProperty("--t", share);
  });
  const command = `python -m experiments run predicted --stage ${kernel.rung}`;
  $("#time").textContent = kernel.time?.says ?? `No predicted time is kept; for the next report: ${command}`;
  $("#facts").textContent = factsOf(trace);
  $("#missing").replaceChildren(...trace.missing.map((text) => element("li", text.replaceAll("`", ""))));
  $("#gaps").hidden = !trace.missing.length;
  $("#slider").max = trace.steps.length - 1;
  $("#thread").max = trace.threads - 1;
  $("#warp").max = trace.warps - 1;
  const rows = Math.ceil(trace.sharedBytes / (BANKS * WORD));
  $("#rows").max = Math.max(0, rows - ROWS);
  $("#window").hidden = rows <= ROWS;
  $("#shared-view").classList.toggle("unused", !trace.sharedBytes);
  for (const output of document.querySelectorAll("output")) output.textContent = "";
}

function links(box, names, current, make) {
  box.replaceChildren(...names.map((name) => {
    const [text, near] = make(name), link = element("a", text);
    link.href = `#${near.rung}-${near.dialect}-${near.variant}`;
    if (name === current) link.setAttribute("aria-current", "true");
    return link;
  }));
  box.hidden = names.length < 2;
}

function element(name, text) {
  return Object.assign(document.createElement(name), { textContent: text });
}

/** The problem, the launch and the block, in a line. */
function factsOf(trace) {
  const [launch] = trace.launches, size = (edges) => edges.filter((edge, i) => edge > 1 || i === 0).join(" × ");
  return `${trace.math} · M, N, K = ${trace.m}, ${trace.n}, ${trace.k} · grid ${size(launch.grid)} · `
    + `${trace.threads} threads per block · ${count(trace.sharedBytes, "byte")} of shared memory · ${trace.compiler}`;
}

/** All words that change with the step or the thread. */
function showWords({ trace, index, step, thread, warp, first }) {
  const group = trace.groups[step.group], size = group.last - group.first + 1;
  const where = step.slice >= 0 ? `Slice ${step.slice}` : "", line = step.line ? `line ${step.line}` : step.place;
  const part = size > 1 ? `${index - group.first + 1} of ${size} steps of this line` : "";
  $("#deed").textContent = `${deedOf(trace, step)}.`;
  const [, time] = now.kernel.time?.lines[step.line] ?? [];
  $("#where").textContent = [where, line, part, time && `predicted: ${time}`].filter(Boolean).join(" · ");
  $("#op").textContent = step.op;
  $("#counter").textContent = `${index + 1} / ${trace.steps.length}`;
  const slider = $("#slider");
  slider.value = index;
  slider.setAttribute("aria-valuetext", `step ${index + 1} of ${trace.steps.length}: ${deedOf(trace, step)}`);
  $("#thread-says").textContent = whoSentence(trace, thread);
  if (document.activeElement !== $("#thread")) $("#thread").value = thread;
  if (document.activeElement !== $("#warp")) $("#warp").value = warp;
  $("#rows").value = first;
  const end = Math.min(trace.sharedBytes, (first + ROWS) * BANKS * WORD);
  $("#window-text").textContent = `bytes ${first * BANKS * WORD} to ${end - 1} of ${trace.sharedBytes}`;
  showRequest(trace, step, warp);
  showLanes({ trace, step, warp });
}

const SECTORS = "A sector is 32 neighbouring bytes, the least that global memory moves. Dark: what a lane asks for.";
const CHUNKS = "Rows of 128 bytes, in chunks of 16. The number says which chunk of its row in global memory a cell "
  + "holds: a swizzle changes their order.";

/** The count of one warp's request in words, and that of all warps. */
function showRequest(trace, step, warp) {
  const cost = costOf(trace, step, warp), lanes = requestOf(trace, step, warp);
  const view = $("#request-view");
  view.classList.toggle("unused", !cost && !step.bulk);
  view.classList.toggle("wasted", Boolean(cost?.wasted));
  const places = step.space === "global" ? "sectors" : "banks";
  $("#request-title").textContent = step.bulk ? "The box in shared memory" : `Warp ${warp} at the ${places}`;
  $("#cost").textContent = cost ? `${cost.number} ${cost.unit}` : "";
  $("#cost-text").textContent = cost ? `; ${cost.text}.` : quiet(trace, step, warp);
  if (step.bulk) $("#why").textContent = CHUNKS;
  else $("#why").textContent = !cost ? "" : step.space === "shared" ? whyOf(step, lanes, cost.number) : SECTORS;
  const counts = range(0, trace.warps).map((one) => countOf(trace, step, one));
  const sums = [0, 1].map((which) => counts.reduce((sum, one) => sum + one[which], 0));
  const ideal = sums[0] === sums[1] ? "" : `; ${sums[1].toLocaleString("en")} would do`;
  const all = step.space === "shared" ? count(sums[0], "wavefront") : count(sums[0], "sector");
  $("#all-warps").textContent = cost && trace.warps > 1 ? `All ${trace.warps} warps: ${all}${ideal}.` : "";
}

/** Why there is no request to show. */
function quiet(trace, step, warp) {
  if (step.kind === "operand") return "The tensor core takes all of it: no lane asks.";
  if (step.bulk) return "The TMA unit takes all of it: no lane asks.";
  if (!step.space) return "This step touches no memory.";
  if (step.kind === "mbarrier") return "No data move: threads and copies meet here.";
  const other = range(0, trace.warps).find((one) => countOf(trace, step, one)[0]);
  return `Warp ${warp} takes no part in this step${other === undefined ? "" : `; warp ${other} does`}.`;
}

/** The same request as a table, for those who read rather than look; filled where it is open. */
function showLanes({ trace, step, warp }) {
  const details = $("#lanes-table"), body = $("#lanes-body");
  details.hidden = !costOf(trace, step, warp);
  if (!details.open) return;
  const isShared = step.space === "shared";
  $("#lanes-place").textContent = isShared ? "bank" : "sector";
  body.replaceChildren(...requestOf(trace, step, warp).map(({ lane, thread, offset }) => {
    const row = document.createElement("tr");
    const place = isShared ? Math.floor(offset / WORD) % BANKS : Math.floor(offset / SECTOR);
    for (const value of [lane, thread, offset, place, spanOf(trace, elementsOf(trace, step, thread))]) {
      row.append(element("td", value));
    }
    return row;
  }));
}

/** The line of a step, lit, and in view within its own pane. */
function showSource(trace, step) {
  const pane = $("#source pre"), old = $("#code .now"), line = $("#code").children[step.line - 1];
  if (old === line) return;
  old?.classList.remove("now");
  if (!line) return;
  line.classList.add("now");
  const below = line.offsetTop - pane.scrollTop;
  if (below < 20 || below > pane.clientHeight - 60) pane.scrollTop = line.offsetTop - pane.clientHeight / 3;
}

function showLegend(colours) {
  for (const [name, use] of Object.entries(USE)) {
    for (const array of ["A", "B"]) {
      document.documentElement.style.setProperty(`--${array}-${name}`, css(colours.element(array, use)));
    }
  }
}

/** Who a thread is. */
function whoSentence(trace, thread) {
  const owned = count(trace.owners.reduce((sum, owner) => sum + (owner === thread), 0), "element");
  return `Thread ${thread} is lane ${thread % WARP} of warp ${Math.floor(thread / WARP)}; it owns ${owned} of C.`;
}

function ownerSentence(trace, row, column, owner) {
  const blocks = blocksAt(trace, row, column), by = `${blocks.length > 1 ? "blocks" : "block"} ${blocks.join(", ")}`;
  if (owner === NOWHERE) return `C[${row}, ${column}]: ${by}; the thread is not known.`;
  return `C[${row}, ${column}]: ${by}, warp ${Math.floor(owner / WARP)}, lane ${owner % WARP}, thread ${owner}.`;
}

// By USE.
const USED = [
  "not in use now", "in shared memory", ...["block", "warp", "lane"].map((who) => `touched by this ${who} now`)];

function elementSentence(trace, id, uses) {
  return id < 0 ? "" : `${nameOf(trace, id)}: ${USED[uses.ids[id]]}.`;
}

/** What a word of shared memory holds, and who touches it now. */
function wordSentence(trace, step, word, uses) {
  const per = WORD / trace.unit, units = range(word * per, per);
  const coming = units.map((unit) => uses.flying[unit]).filter((id) => id !== EMPTY);
  const held = spanOf(trace, units.map((unit) => uses.state[unit])), name = sharedName(trace, word * WORD);
  const touches = (thread) => unitsOf(trace, step, thread).some((unit) => units.includes(unit));
  const who = step.bulk ? [] : range(0, trace.threads).filter(touches);
  const few = who.map((thread) => `thread ${thread}`).join(", ");
  const threads = who.length > 4 ? `${who.length} threads, ${who[0]} to ${who[who.length - 1]}` : few;
  return `Byte ${word * WORD}, bank ${word % BANKS}, ${name}: holds ${held}`
    + `${coming.length ? `; ${spanOf(trace, coming)} on its way` : ""}${who.length ? `; touched by ${threads}` : ""}.`;
}

function laneSentence(trace, step, thread) {
  const offset = offsetOf(step, thread), lane = `Lane ${thread % WARP} (thread ${thread})`;
  if (offset < 0 || step.bulk) return `${lane} takes no part.`;
  const bank = Math.floor(offset / WORD) % BANKS, sector = Math.floor(offset / SECTOR);
  const place = step.space === "shared" ? `bank ${bank}` : `sector ${sector}`;
  const elements = spanOf(trace, elementsOf(trace, step, thread));
  return `${lane}: ${count(step.bytes, "byte")} from byte ${offset} on, ${place}: ${elements}.`;
}
