// What scrolls on its own has to be reachable with the keyboard.
function reachable() {
  for (const part of document.querySelectorAll("pre, .cell_output, .table-wrapper, article figure")) {
    if (part.scrollWidth > part.clientWidth) {
      part.tabIndex = 0;
    } else {
      part.removeAttribute("tabindex");
    }
  }
}
addEventListener("load", reachable);
addEventListener("resize", reachable);
