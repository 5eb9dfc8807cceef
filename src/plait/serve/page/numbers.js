// Numbers as people read them.

export function percent(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.005) return "<1%";
  if (share < 1 && share >= 0.995) return ">99%";
  return `${Math.round(100 * share)}%`;
}

// A figure such as an accuracy or a loss: three digits behind the point.
export function figure(value) {
  return value === null || value === undefined ? "–" : value.toFixed(3).replace("-", "−");
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 90 * 60) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function round(value, digits = 2) {
  return value === null ? "–" : value.toFixed(digits).replace("-", "−");
}
