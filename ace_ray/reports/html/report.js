// Filters of the wrong answers. Without it all answers are there, and open and close.
(function () {
  "use strict";
  const filters = document.querySelector("[data-filters]");
  if (!filters) return;
  const answers = Array.from(document.querySelectorAll("[data-answer]"));
  const selects = Array.from(filters.querySelectorAll("[data-filter]"));
  const shown = filters.querySelector("[data-shown]");

  // An answer has one of most, and a list of the rule sets and error types that it is wrong under.
  function matches(answer, key, value) {
    const found = answer.dataset[key];
    if (key === "wrong" && value.startsWith("only ")) return found === value.slice("only ".length);
    if (key === "wrong" || key === "types") return found.split("\n").includes(value);
    return found === value;
  }

  function apply() {
    const asked = selects.filter((select) => select.value !== "");
    let count = 0;
    for (const answer of answers) {
      const fits = asked.every((s) => matches(answer, s.dataset.filter, s.value));
      answer.hidden = !fits;
      count += fits ? 1 : 0;
    }
    shown.textContent = count + " of " + answers.length + " shown";
  }

  filters.addEventListener("change", apply);
  filters.querySelector("[data-reset]").addEventListener("click", function () {
    for (const select of selects) select.value = "";
    apply();
  });
  filters.hidden = false;
  apply();
})();
