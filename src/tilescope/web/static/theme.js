// Runs before the page is painted: a theme that was chosen earlier is there from the first pixel.
"use strict";
try {
  const chosen = localStorage.getItem("tilescope-theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* a browser without storage follows the system */ }
