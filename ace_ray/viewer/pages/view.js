// Keys, filters that apply at once, and lists that grow with their run. Without it all works by links.
(function () {
  "use strict";
  const one = (selector) => document.querySelector(selector);
  const rows = Array.from(document.querySelectorAll("[data-row]"));
  let chosen = -1;

  function choose(place) {
    if (!rows.length) return;
    if (chosen >= 0) rows[chosen].removeAttribute("aria-selected");
    chosen = Math.max(0, Math.min(rows.length - 1, place));
    rows[chosen].setAttribute("aria-selected", "true");
    rows[chosen].scrollIntoView({ block: "nearest" });
  }

  function follow(selector) {
    const link = one(selector);
    if (link) window.location.assign(link.href);
  }

  function unfold() {
    const folds = Array.from(document.querySelectorAll("details.fold"));
    const open = folds.some((fold) => !fold.open);
    for (const fold of folds) fold.open = open;
  }

  function step(by) {
    if (rows.length) choose(chosen + by);
    else follow(by > 0 ? "[data-next]" : "[data-previous]");
  }

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    Enter: () => chosen >= 0 && rows[chosen].querySelector("[data-open]").click(),
    u: () => follow("[data-back]"),
    "]": () => follow("[data-next-page]"),
    "[": () => follow("[data-previous-page]"),
    e: unfold,
    "/": () => one("[data-search]") && one("[data-search]").focus(),
    "?": () => one("[data-keys]").showModal(),
  };

  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, button, dialog[open]")) return;
    if (event.key === "Enter" && event.target.closest("a, summary")) return;
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  const form = one("[data-form]");
  if (form) {
    form.addEventListener("change", function (event) {
      if (event.target.tagName === "SELECT") form.requestSubmit();
    });
    // An address says no more than what was asked for.
    form.addEventListener("formdata", function (event) {
      for (const [name, value] of Array.from(event.formData)) {
        if (value === "") event.formData.delete(name);
      }
    });
  }

  const live = one("[data-live]");
  if (live) {
    const had = Number(live.dataset.live);
    const timer = setInterval(async function () {
      const answer = await fetch("state").catch(() => null);
      if (!answer || !answer.ok) return;
      const state = await answer.json();
      if (state.rows === had && !state.finished) return;
      if (chosen < 0 && document.activeElement === document.body) window.location.reload();
      else one("[data-count]").textContent += "; there are new rows, load the page again";
      clearInterval(timer);
    }, 3000);
  }
})();
