// The page's location: #s09-cuda-two_blocks-line-49-step-12-thread-5 is a kernel, and where one is in it.

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

/** The kernel of the index that is meant: of the rung, in the dialect and the variant as far as there are such. */
function nearestKernel(index, { rung, dialect, variant }) {
  const score = (kernel) => 2 * (kernel.dialect === dialect) + (kernel.variant === variant);
  return index.filter((kernel) => kernel.rung === rung)
    .reduce((best, kernel) => (best && score(best) >= score(kernel) ? best : kernel), null);
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
