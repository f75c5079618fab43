// A label's heat over its picture. The service gives a small grid; the browser enlarges it smoothly.

// Dark violet over red to light yellow: readable in grey and for the colour-blind.
const STOPS = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];

export function drawHeat(canvas, map) {
  const grid = document.createElement("canvas");
  grid.width = map.columns;
  grid.height = map.rows;
  const context = grid.getContext("2d");
  const pixels = context.createImageData(map.columns, map.rows);
  map.values.flat().forEach((heat, cell) => {
    pixels.data.set([...colourOf(heat), Math.round(255 * (0.2 + 0.55 * heat))], 4 * cell);
  });
  context.putImageData(pixels, 0, 0);
  canvas.width = canvas.height = 256;
  const target = canvas.getContext("2d");
  target.clearRect(0, 0, 256, 256);
  target.imageSmoothingQuality = "high";
  target.drawImage(grid, 0, 0, 256, 256);
}

function colourOf(heat) {
  const place = Math.min(Math.max(heat, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, channel) =>
    Math.round(value + (place - low) * (STOPS[low + 1][channel] - value)));
}
