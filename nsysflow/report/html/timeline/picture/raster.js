// How do many bars get to the screen quickly? As pixels in memory, handed to the canvas in one go.

/** A picture of packed pixels. Coordinates are whole device pixels; what lies outside is cut off. */
class Raster {
  constructor(width, height) {
    this.width = width;
    this.height = height;
    this.image = new ImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear(colour) {
    this.pixels.fill(colour);
  }

  bar(left, top, right, bottom, colour) {
    const x0 = Math.max(left, 0);
    const x1 = Math.min(right, this.width);
    if (x1 <= x0) return;
    const y1 = Math.min(bottom, this.height);
    for (let y = Math.max(top, 0); y < y1; y++) {
      this.pixels.fill(colour, y * this.width + x0, y * this.width + x1);
    }
  }

  /** A bar of one pixel's width, which most bars have. */
  column(x, top, bottom, colour) {
    if (x < 0 || x >= this.width) return;
    const { width, pixels } = this;
    const end = Math.min(bottom, this.height) * width + x;
    for (let at = Math.max(top, 0) * width + x; at < end; at += width) pixels[at] = colour;
  }

  /** Amounts above each other from the bottom up, `total` of which would fill the height. What is
   * not 0 is at least two pixels high. */
  stack(x, top, bottom, amounts, total, colours) {
    let sum = 0;
    for (let kind = 0; kind < amounts.length; kind++) sum += amounts[kind];
    if (!(sum > 0)) return;
    const height = Math.max(2, Math.round((bottom - top) * Math.min(sum / total, 1)));
    let below = 0;
    let low = bottom;
    for (let kind = 0; kind < amounts.length && low > bottom - height; kind++) {
      if (!(amounts[kind] > 0)) continue;
      below += amounts[kind];
      const high = Math.min(low, bottom - Math.round((height * below) / sum));
      this.column(x, high, low, colours[kind]);
      low = high;
    }
  }
}
