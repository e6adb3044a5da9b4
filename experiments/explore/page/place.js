// The page's location: #s09-cuda-two_blocks-line-49-step-12-thread-5 is a kernel, and where one is in it.

/** A fragment as it reads: with its %20 as spaces, or as it is where a % begins no such code. */
function plainFragment(fragment) {
  const text = fragment.replace(/^#/, "");
  try { return decodeURIComponent(text); } catch { return text; }
}

/** What a fragment asks for; null where it names no rung. Numbers it does not name are undefined. */
function parsePlace(fragment) {
  const found = /^#?(s\d+)(?:_\w+?)?(?:-(\w+))?(?:-(\w+))?$/.exec(fragment.replace(/-(?:line|step|thread)-.*/, ""));
  if (!found) return null;
  const number = (name) => {
    const given = new RegExp(`-${name}-(\\d+)`).exec(fragment);
    return given ? Number(given[1]) : undefined;
  };
  const [, rung, dialect, variant] = found;
  return { rung, dialect, variant, line: number("line"), step: number("step"), thread: number("thread") };
}

/** The kernel that is meant: of the rung, in the dialect and the variant if there are such, else its best variant. */
function nearestKernel(kernels, { rung, dialect, variant }) {
  const score = (kernel) => 4 * (kernel.dialect === dialect) + 2 * (kernel.variant === variant) + kernel.best;
  return kernels.filter((kernel) => kernel.rung === rung)
    .reduce((best, kernel) => (best && score(best) >= score(kernel) ? best : kernel), null);
}

/** What a fragment asks for that is not there, and what is shown instead; empty where it is all there. */
function insteadSentence({ dialects }, fragment, kernel, trace) {
  const asked = parsePlace(fragment), there = `${kernel.rung} in ${dialects[kernel.dialect]}`;
  if (!asked) return fragment ? `No kernel is called '${fragment}': this is ${there}.` : "";
  const { rung, dialect, variant, line, step } = asked, called = dialects[dialect] ?? dialect;
  if (rung !== kernel.rung) return `There is no ${rung} here: this is ${there}.`;
  if (dialect && dialect !== kernel.dialect) {
    return `There is no ${rung} in ${called}: this is ${dialects[kernel.dialect]}'s.`;
  }
  if (variant && variant !== kernel.variant) {
    return `There is no variant '${variant}' of ${rung} in ${called}: this is '${kernel.variant}'.`;
  }
  if (stepAt(trace, asked) !== undefined || (line === undefined && step === undefined)) return "";
  if (step === undefined) return `No step is at line ${line}.`;
  return `There is no step ${step}: the last is ${trace.steps.length - 1}.`;
}

/** The step that is meant: by its number, or the first of a line; undefined where there is none. */
function stepAt(trace, { line, step }) {
  if (step !== undefined) return trace.steps[step]?.index;
  return trace.steps.find((one) => one.line === line)?.index;
}

/** The fragment of a place: its line, and its step where it is not the first of that line. */
function fragmentOf({ rung, dialect, variant }, trace, index, thread) {
  const { line } = trace.steps[index], isFirst = index === stepAt(trace, { line });
  const place = (line ? `-line-${line}` : "") + (line && isFirst ? "" : `-step-${index}`);
  return `#${rung}-${dialect}-${variant}${place}${thread ? `-thread-${thread}` : ""}`;
}
