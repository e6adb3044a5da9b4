// Colours of cells, made in OKLCH so that equal steps look equal (Björn Ottosson, 2020). Hues differ for colour-blind
// readers too: A is blue, B orange, C violet; how much a cell is in use is told by its lightness alone.
const HUE = { A: 252, B: 62, C: 315, partials: 315, "": 160 };
// What a cell is at this step, from least to most.
const USE = { idle: 0, held: 1, block: 2, warp: 3, lane: 4 };
const LIGHT = { lightness: [0.955, 0.875, 0.74, 0.58, 0.36], chroma: [0.014, 0.05, 0.11, 0.15, 0.12] };
const DARK = { lightness: [0.265, 0.37, 0.5, 0.68, 0.93], chroma: [0.02, 0.05, 0.1, 0.14, 0.06] };
const FINE = 32; // shades of one use
const WARP_HUES = [252, 62, 155, 340, 100, 215, 25, 300];

/** [red, green, blue], 0 to 255, of lightness 0 to 1, chroma and hue in degrees; out of the screen's range: clipped. */
function oklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(hue * Math.PI / 180), b = chroma * Math.sin(hue * Math.PI / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((linear) => {
    const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
    return Math.round(255 * Math.min(1, Math.max(0, value)));
  });
}

/** All the colours of one theme, and where they are used. Each is worked out once: pictures ask for many cells. */
function palette(dark) {
  const { lightness, chroma } = dark ? DARK : LIGHT, elements = {}, warps = [];
  return {
    dark,
    /** Of an element of A, B or C; shift, -0.5 to 0.5, makes it a little darker or lighter: where it is in its row. */
    element: (array, use, shift = 0) => {
      const known = (elements[array] ??= []), fine = Math.round((shift + 0.5) * FINE), at = use * (FINE + 1) + fine;
      const light = lightness[use] + (fine / FINE - 0.5) * (use === USE.idle ? 0.03 : 0.13);
      return (known[at] ??= oklch(light, chroma[use], HUE[array] ?? HUE[""]));
    },
    /** Of a warp's part of C; chosen: the warp that is looked at. */
    warp: (warp, chosen) => {
      const odd = (Math.floor(warp / WARP_HUES.length) % 2) * 0.05, hue = WARP_HUES[warp % WARP_HUES.length];
      const light = dark ? (chosen ? 0.56 : 0.36) + odd : (chosen ? 0.75 : 0.91) - odd;
      return (warps[2 * warp + chosen] ??= oklch(light, chosen ? 0.13 : 0.055, hue));
    },
    /** Of the n-th wavefront of a request that has `of`: from blue to yellow, and calm where there is one. */
    wavefront: (n, of) => {
      const share = of > 1 ? n / (of - 1) : 0;
      const [light, range_] = dark ? [0.55, 0.33] : [0.42, 0.4];
      return oklch(light + range_ * share, 0.13, 260 - 170 * share);
    },
  };
}

const css = ([red, green, blue], alpha = 1) => `rgb(${red} ${green} ${blue} / ${alpha})`;

/** Black or white, whichever stands out more: 4.58 : 1 at least, as WCAG counts contrast. */
function readable(rgb) {
  const linear = rgb.map((value) => (value <= 10 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return luminance > 0.179 ? "#000" : "#fff"; // where both have (1.05 / 0.229) = 4.58
}
