// What the page does beyond showing itself: tables that unpack, sort, filter and fold; links that open what they point
// into; the place in the contents. Without it all but the rows of long tables is there.
(() => {
  const FOLDED = 40; // rows of a table that are shown at first

  const make = (name, properties, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };

  // What a cell is sorted by. Sizes: the products in it, from "4096" (a cube) or "128×128×65536".
  const KEYS = {
    text: (text) => text,
    prose: (text) => text,
    number: (text) => Number(text.replaceAll(",", "")),
    size: (text) => {
      const edges = text.split("×").map(Number);
      return edges.length === 1 ? edges[0] ** 3 : edges.reduce((product, edge) => product * edge, 1);
    },
  };
  const collator = new Intl.Collator("en", { numeric: true });
  const compare = (a, b) => (typeof a === "string" ? collator.compare(a, b) : a - b);

  async function enliven(box) {
    const table = box.querySelector("table"), body = table.tBodies[0], tools = box.querySelector(".tools");
    const output = tools.querySelector("output"), unfold = box.querySelector(".unfold");
    const content = JSON.parse(await inflateText(box.querySelector("script").textContent));
    const classes = content.columns.map(({ kind }) => ({ text: "t", prose: "p" })[kind] ?? "");
    const rows = content.rows.map((cells) => ({
      cells, text: cells.join(" ").toLowerCase(),
      row: make("tr", {}, ...cells.map((text, index) => make("td", { className: classes[index] }, text))),
    }));
    const search = tools.querySelector("input");
    const selects = content.selects.map(({ label, column, options }) => {
      const select = make("select", {}, make("option", { value: "" }, "all"), ...options.map((text) => make("option", {}, text)));
      output.before(make("label", {}, `${label} `, select));
      return { select, column };
    });
    let folded = rows.length > FOLDED;

    function show() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let found = 0;
      for (const { row, cells, text } of rows) {
        const fits = words.every((word) => text.includes(word)) &&
          selects.every(({ select, column }) => !select.value || cells[column] === select.value);
        found += fits;
        row.hidden = !fits || (folded && found > FOLDED);
      }
      const filtered = found < rows.length;
      output.textContent = filtered ? `${found} of ${rows.length} rows` : `${rows.length} rows`;
      unfold.hidden = found <= FOLDED;
      unfold.textContent = folded ? `Show all ${found} rows` : `Show the first ${FOLDED} rows`;
    }

    function sort(head, index, kind) {
      const ascending = head.ariaSort !== "ascending", key = KEYS[kind];
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.ariaSort = ascending ? "ascending" : "descending";
      rows.sort((a, b) => {
        const one = a.cells[index], other = b.cells[index];
        if (!one || !other) return !one - !other; // what was not measured is last either way
        return ascending ? compare(key(one), key(other)) : compare(key(other), key(one));
      });
      body.append(...rows.map(({ row }) => row));
      show();
    }

    content.columns.forEach(({ name, label, kind }, index) => {
      const button = make("button", { type: "button" }, label);
      const head = make("th", { scope: "col", className: kind, title: name }, button);
      button.addEventListener("click", () => sort(head, index, kind));
      table.tHead.rows[0].append(head);
    });
    body.append(...rows.map(({ row }) => row));
    search.addEventListener("input", show);
    for (const { select } of selects) select.addEventListener("change", show);
    tools.addEventListener("submit", (event) => event.preventDefault());
    unfold.addEventListener("click", () => { folded = !folded; show(); });
    tools.hidden = rows.length < 8;
    show();
  }
  for (const box of document.querySelectorAll("details.data")) {
    box.addEventListener("toggle", () => enliven(box), { once: true });
  }

  // A link into something that is folded, or that another view hides, shows it.
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const view = target.closest(".of");
    const choice = view && [...document.querySelectorAll("input[name=device]")].find(({ value }) => view.classList.contains(`of-${value}`));
    if (choice) choice.checked = true;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  reveal();

  const contents = document.querySelector("nav details");
  const narrow = matchMedia("(max-width: 56rem)");
  const place = () => { contents.open = !narrow.matches; };
  narrow.addEventListener("change", place);
  place();

  // The link of the section that is being read.
  const links = new Map([...document.querySelectorAll("nav a[href^='#']")].map((link) => [link.hash.slice(1), link]));
  const inView = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      const link = links.get(target.id);
      link.setAttribute("aria-current", "true");
      if (!narrow.matches) link.scrollIntoView({ block: "nearest" });
    }
  }, { rootMargin: "-15% 0px -80% 0px" });
  document.querySelectorAll("main :is(section, details)[id]").forEach((section) => links.has(section.id) && inView.observe(section));
})();
