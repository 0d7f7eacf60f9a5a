// Two drawing surfaces with the same methods: a canvas, and the text of an SVG file.

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

export class CanvasSurface {
  constructor(context) {
    this.kind = "canvas";
    this.context = context;
    this.strip = null;
  }

  rect(x, y, width, height, fill) {
    this.context.fillStyle = fill;
    this.context.fillRect(x, y, width, height);
  }

  frame(x, y, width, height, colour, lineWidth = 1) {
    this.context.strokeStyle = colour;
    this.context.lineWidth = lineWidth;
    this.context.strokeRect(x, y, width, height);
  }

  line(points, colour, lineWidth = 1, dash = []) {
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = lineWidth;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
    context.setLineDash([]);
  }

  area(points, fill) {
    const { context } = this;
    context.fillStyle = fill;
    context.beginPath();
    points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.fill();
  }

  text(x, y, text, { colour, size = 12, align = "left", bold = false }) {
    this.context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    this.context.fillStyle = colour;
    this.context.textAlign = align;
    this.context.textBaseline = "alphabetic";
    this.context.fillText(text, x, y);
  }

  width(text, { size = 12, bold = false }) {
    this.context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    return this.context.measureText(text).width;
  }

  clip(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }

  faded(part, draw) {
    this.context.globalAlpha = part;
    draw();
    this.context.globalAlpha = 1;
  }

  // Columns of pixels, one colour each, stretched over a height.
  columns(x, y, height, pixels) {
    const width = pixels.length / 4;
    this.strip ??= this.context.canvas.ownerDocument.createElement("canvas");
    if (this.strip.width !== width || this.strip.height !== 1) [this.strip.width, this.strip.height] = [width, 1];
    this.strip.getContext("2d").putImageData(new ImageData(pixels, width, 1), 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(this.strip, 0, 0, width, 1, x, y, width, height);
  }
}

const number = (value) => String(Math.round(value * 100) / 100);

export function escaped(text) {
  const signs = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  // Characters that XML does not allow become a box.
  return text
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\u25a1")
    .replace(/[&<>"]/g, (sign) => signs[sign]);
}

export class SvgSurface {
  constructor() {
    this.kind = "svg";
    this.parts = [];
    this.numClips = 0;
  }

  rect(x, y, width, height, fill) {
    this.parts.push(
      `<rect x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}" fill="${fill}"/>`,
    );
  }

  frame(x, y, width, height, colour, lineWidth = 1) {
    this.parts.push(
      `<rect x="${number(x)}" y="${number(y)}" width="${number(width)}" height="${number(height)}" fill="none" ` +
        `stroke="${colour}" stroke-width="${lineWidth}"/>`,
    );
  }

  line(points, colour, lineWidth = 1, dash = []) {
    const path = points.map(([x, y]) => `${number(x)},${number(y)}`).join(" ");
    const dashes = dash.length ? ` stroke-dasharray="${dash.join(" ")}"` : "";
    this.parts.push(`<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="${lineWidth}"${dashes}/>`);
  }

  area(points, fill) {
    this.parts.push(
      `<polygon points="${points.map(([x, y]) => `${number(x)},${number(y)}`).join(" ")}" fill="${fill}"/>`,
    );
  }

  text(x, y, text, { colour, size = 12, align = "left", bold = false }) {
    const anchor = { left: "", center: ' text-anchor="middle"', right: ' text-anchor="end"' }[align];
    const weight = bold ? ' font-weight="600"' : "";
    this.parts.push(
      `<text x="${number(x)}" y="${number(y)}" font-size="${size}" fill="${colour}"${anchor}${weight}>` +
        `${escaped(text)}</text>`,
    );
  }

  // An estimate, because there is no font to measure with.
  width(text, { size = 12, bold = false }) {
    return text.length * size * (bold ? 0.6 : 0.55);
  }

  clip(x, y, width, height, draw) {
    const name = `c${this.numClips++}`;
    this.parts.push(`<clipPath id="${name}">`);
    this.rect(x, y, width, height, "#000000");
    this.parts.push(`</clipPath><g clip-path="url(#${name})">`);
    draw();
    this.parts.push("</g>");
  }

  faded(part, draw) {
    this.parts.push(`<g opacity="${part}">`);
    draw();
    this.parts.push("</g>");
  }

  // Adjacent columns of one colour are one rectangle.
  columns(x, y, height, pixels) {
    const width = pixels.length / 4;
    const same = (one, other) => [0, 1, 2, 3].every((at) => pixels[4 * one + at] === pixels[4 * other + at]);
    for (let begin = 0, end; begin < width; begin = end) {
      for (end = begin + 1; end < width && same(begin, end);) end++;
      const [red, green, blue, alpha] = pixels.slice(4 * begin, 4 * begin + 4);
      if (!alpha) continue;
      const cover = alpha < 255 ? ` fill-opacity="${number(alpha / 255)}"` : "";
      this.parts.push(
        `<rect x="${number(x + begin)}" y="${number(y)}" width="${end - begin}" height="${number(height)}" ` +
          `fill="rgb(${red},${green},${blue})"${cover}/>`,
      );
    }
  }

  file(width, height, background) {
    return [
      `<svg xmlns="http://www.w3.org/2000/svg" width="${number(width)}" height="${number(height)}" ` +
        `viewBox="0 0 ${number(width)} ${number(height)}" font-family="${FONT}">`,
      background ? `<rect width="100%" height="100%" fill="${background}"/>` : "",
      ...this.parts,
      "</svg>\n",
    ].join("\n");
  }
}
