// The steps as a score: time runs to the right, one line for each of the memories' doors, a bar line for each barrier.
const VOICES = ["global memory", "into shared", "out of shared", "multiply"];
const VOICE = 16, SCORE_TOP = 18; // pixels

/** The line that a step is drawn on; NOWHERE for what orders the others: it crosses all. */
function voiceOf(step) {
  if (step.kind === "multiply") return 3;
  if (step.space === "global") return 0;
  if (step.space !== "shared" || step.kind === "mbarrier") return NOWHERE;
  return writesShared(step) ? 1 : 2;
}

/** The lines that a trace uses. */
function voicesOf(trace) {
  return VOICES.map((_, voice) => voice).filter((voice) => trace.steps.some((step) => voiceOf(step) === voice));
}

/** Draw the steps and where one is; returns what `picture` wants. */
function drawScore(context, width, { trace, index, colours }) {
  const voices = voicesOf(trace), narrow = width < 560, left = narrow ? 0 : 96;
  const count = trace.steps.length, wide = (width - left) / count, height = SCORE_TOP + voices.length * VOICE;
  drawBars(context, trace, left, wide, height);
  for (const [row, voice] of voices.entries()) {
    const y = SCORE_TOP + row * VOICE;
    if (!narrow) write(context, VOICES[voice], 0, y + VOICE / 2, { size: 11 });
    context.fillStyle = ink("line");
    context.fillRect(left, y + VOICE / 2, width - left, 1);
    for (const step of trace.steps) {
      if (voiceOf(step) !== voice) continue;
      context.fillStyle = css(colours.element(step.subject, USE.warp));
      const gap = wide > 3 ? 1 : 0;
      context.fillRect(left + step.index * wide, y + 3, Math.max(1, wide - gap), VOICE - 6);
    }
  }
  context.fillStyle = ink("text");
  for (const step of trace.steps) {
    if (voiceOf(step) !== NOWHERE) continue;
    const x = left + (step.index + 0.5) * wide, isBarrier = step.kind === "barrier";
    if (isBarrier) context.fillRect(x - 0.75, SCORE_TOP, 1.5, height - SCORE_TOP);
    else context.fillRect(x - 0.5, height - 5, 1, 4);
  }
  context.strokeStyle = ink("text");
  context.lineWidth = 2;
  context.strokeRect(left + index * wide - 1, SCORE_TOP - 1, Math.max(3, wide) + 2, height - SCORE_TOP + 2);
  const part = { name: "score", x: left, y: 0, cell: [wide, height], columns: count, rows: 1 };
  return { parts: [part], height: height + 3 };
}

/** The slices as bands, with their numbers; what touches no slice belongs to the one before. */
function drawBars(context, trace, left, wide, height) {
  for (const { slice, first, last } of bandsOf(trace.steps)) {
    const x = left + first * wide, across = (last + 1 - first) * wide;
    context.fillStyle = ink("empty");
    context.fillRect(x, 0, across - 2, height);
    const name = slice === NOWHERE ? "C" : across > 48 ? `slice ${slice}` : String(slice);
    if (across > 14) write(context, name, x + 4, SCORE_TOP / 2, { size: 10 });
  }
}

/** Runs of steps on one slice of K: {slice, first, last}; NOWHERE: on C. */
function bandsOf(steps) {
  const bands = [];
  for (const { slice, index, subject } of steps) {
    const at = !["A", "B", ""].includes(subject) ? NOWHERE : slice === NOWHERE ? bands.at(-1)?.slice ?? 0 : slice;
    if (bands.at(-1)?.slice === at) bands.at(-1).last = index;
    else bands.push({ slice: at, first: index, last: index });
  }
  return bands;
}
