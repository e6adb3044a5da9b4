// What the scripts of pages share: packed data are opened, and the theme is kept.
"use strict";

/** The bytes of a base64 text of raw deflate. */
async function inflate(base64) {
  const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

async function inflateText(base64) {
  return new TextDecoder().decode(await inflate(base64));
}

// Storage may be forbidden, as it is in some browsers for files; the choice then lasts as long as the page.
for (const input of document.querySelectorAll("input[name=theme]")) {
  const name = "gemm-ladder-theme";
  try { if (localStorage.getItem(name) === input.value) input.checked = true; } catch { /* not kept */ }
  input.addEventListener("change", () => {
    try { localStorage.setItem(name, input.value); } catch { /* not kept */ }
  });
}
