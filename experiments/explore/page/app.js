// The page at work: one kernel is open, at one step, with one thread looked at; everything else follows from these.
const $ = (selector) => document.querySelector(selector);
const INDEX = JSON.parse($("#index").textContent); // kernels: {key, rung, dialect, variant, best, file}
const REST_MS = 200; // after which the location is that of what is shown
const STEP_MS = 420, FAST_MS = 70; // of playing: a line's first steps, and the many alike that may follow

const now = {
  kernel: null, trace: null, index: 0, thread: 0, seen: null, first: 0, // what is shown
  opening: null, asked: "", timer: null, resting: null, // what is under way
};
let colours = palette(isDark());

const looked = () => now.seen ?? now.thread; // hovering shows a thread for as long as it lasts
const uses = () => usesOf(now.trace, now.trace.steps[now.index], looked());
const view = () => ({
  trace: now.trace, index: now.index, step: now.trace.steps[now.index], thread: looked(), lane: looked() % WARP,
  warp: Math.floor(looked() / WARP), uses: now.uses, colours, first: now.first,
});

const pictures = [
  picture($("#score"), (context, width) => drawScore(context, width, view()), pointScore),
  picture($("#matrices"), (context, width) => drawMatrices(context, width, view()), pointMatrix),
  picture($("#lanes"), (context, width) => drawLanes(context, width, view()), pointLane),
  picture($("#shared"), (context, width) => drawShared(context, width, view()), pointShared),
  picture($("#request"), (context, width) => drawRequest(context, width, view()), pointRequest),
];

/** Open what a fragment asks for. */
async function openPlace(fragment) {
  clearTimeout(now.resting);
  const opening = now.opening = Symbol("opening"); // a later one overtakes it
  const plain = plainFragment(fragment);
  const meant = parsePlace(plain), found = meant && nearestKernel(INDEX.kernels, meant);
  const kernel = found ?? nearestKernel(INDEX.kernels, parsePlace(INDEX.start)) ?? INDEX.kernels[0];
  const asked = found && [undefined, kernel.dialect].includes(meant.dialect) ? meant : {}; // lines are of one file
  if (kernel !== now.kernel) {
    stop();
    const [trace, source] = await Promise.all([
      openTrace($(`#trace-${kernel.key}`).textContent), inflateText($(`[data-file="${kernel.file}"]`).textContent)]);
    if (now.opening !== opening) return;
    Object.assign(now, { kernel, trace, index: 0, thread: 0, seen: null, first: 0 });
    showKernel(kernel, trace, source);
  }
  now.index = stepAt(now.trace, asked) ?? (asked.line === undefined ? 0 : now.index);
  now.thread = clamp(asked.thread ?? now.thread, 0, now.trace.threads - 1);
  Object.assign(now, { asked: fragment, opening: null });
  $("#instead").textContent = insteadSentence(INDEX, plain, kernel, now.trace);
  show();
}

function go(index) {
  now.index = clamp(index, 0, now.trace.steps.length - 1);
  $("#slider").value = now.index; // at once: the next key counts from there
  show();
}

function goLine(by) {
  const { groups, steps } = now.trace, group = groups[clamp(steps[now.index].group + by, 0, groups.length - 1)];
  go(group.first);
}

function look(thread, sure) {
  if (sure) now.thread = clamp(thread, 0, now.trace.threads - 1);
  now.seen = sure ? null : thread;
  show();
}

let waiting = 0;
/** Draw everything, once before the next frame. */
function show() {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => {
    now.uses = uses();
    now.first = firstRow(now.trace, now.trace.steps[now.index], now.uses, now.first);
    showWords(view());
    showSource(now.trace, now.trace.steps[now.index]);
    for (const one of pictures) one.redraw();
    if (now.opening) return;
    keepPlace();
    document.body.dataset.shown = now.asked;
  });
}

/** The location follows once one rests: a browser takes 200 changes in 10 seconds, and a held key makes more. */
function keepPlace() {
  clearTimeout(now.resting);
  now.resting = setTimeout(() => {
    history.replaceState(null, "", fragmentOf(now.kernel, now.trace, now.index, now.thread));
  }, REST_MS);
}

function play() {
  if (now.timer !== null) return stop();
  $("#play").textContent = "⏸";
  $("#play").setAttribute("aria-label", "Pause");
  if (now.index === now.trace.steps.length - 1) now.index = -1;
  const next = () => {
    go(now.index + 1);
    if (now.index >= now.trace.steps.length - 1) return stop();
    const { first } = now.trace.groups[now.trace.steps[now.index].group];
    now.timer = setTimeout(next, now.index - first > 3 ? FAST_MS : STEP_MS);
  };
  next();
}

function stop() {
  clearTimeout(now.timer);
  now.timer = null;
  $("#play").textContent = "▶";
  $("#play").setAttribute("aria-label", "Play");
}

function pointScore(name, column, _, sure) {
  if (name && sure) go(column);
}

function pointMatrix(name, column, row, sure) {
  const { tile } = now.trace, out = $("#matrices-out");
  if (name !== "C") {
    if (now.seen !== null) look(null, false);
    const place = name === "A" ? [tile.row + row, column] : [row, tile.column + column];
    const id = name ? idOf(now.trace, name, ...place) : NOWHERE;
    out.textContent = name ? elementSentence(now.trace, id, now.uses) : "";
    return;
  }
  const owner = ownerOf(now.trace, row, column);
  if (owner !== NOWHERE) look(owner, sure);
  out.textContent = ownerSentence(now.trace, tile.row + row, tile.column + column, owner);
}

function pointLane(name, column, _, sure) {
  const thread = Math.floor(now.thread / WARP) * WARP + column;
  if (!name) look(null, false);
  else if (thread < now.trace.threads) look(thread, sure);
}

function pointShared(name, column, row) {
  const word = (now.first + row) * BANKS + column;
  $("#shared-out").textContent = name ? wordSentence(now.trace, now.trace.steps[now.index], word, now.uses) : "";
}

function pointRequest(name, _, lane, sure) {
  const thread = Math.floor(looked() / WARP) * WARP + lane;
  if (name && thread < now.trace.threads && sure) look(thread, true);
  $("#request-out").textContent = name ? laneSentence(now.trace, now.trace.steps[now.index], thread) : "";
}

function isDark() {
  const chosen = $("input[name=theme]:checked").value;
  return chosen === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
}

function repaint() {
  inks.clear();
  colours = palette(isDark());
  showLegend(colours);
  if (now.trace) show();
}

$("#play").addEventListener("click", play);
$("#back").addEventListener("click", () => go(now.index - 1));
$("#on").addEventListener("click", () => go(now.index + 1));
$("#line-back").addEventListener("click", () => goLine(-1));
$("#line-on").addEventListener("click", () => goLine(1));
$("#slider").addEventListener("input", (event) => go(Number(event.target.value)));
$("#thread").addEventListener("input", (event) => event.target.value !== "" && look(Number(event.target.value), true));
$("#warp").addEventListener("input", (event) =>
  event.target.value !== "" && look(Number(event.target.value) * WARP + now.thread % WARP, true));
$("#rows").addEventListener("input", (event) => {
  now.first = Number(event.target.value);
  pictures[3].redraw();
});
$("#lanes-table").addEventListener("toggle", () => showLanes(view()));
$("#code").addEventListener("click", (event) => {
  const line = event.target.closest(".steps");
  if (line) go(stepAt(now.trace, { line: Number(line.dataset.line) }));
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, canvas, summary") || !now.trace) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === " " && event.target === document.body) play();
  else if (by && event.shiftKey) goLine(by);
  else if (by) go(now.index + by);
  else return;
  event.preventDefault();
});
for (const input of document.querySelectorAll("input[name=theme]")) input.addEventListener("change", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
new ResizeObserver(() => now.trace && show()).observe($(".views"));
addEventListener("hashchange", (event) => {
  const { hash } = new URL(event.newURL); // the location may have moved on
  if (now.trace && document.getElementById(hash.slice(1))) keepPlace(); // a part of the page: the kernel stays
  else openPlace(hash);
});
repaint();
openPlace(location.hash);
