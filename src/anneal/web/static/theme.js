// Runs before the first paint (a classic script in <head>), so that a chosen theme does not flash.
try {
  const theme = localStorage.getItem("anneal.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* storage is blocked: use the system's theme */ }
