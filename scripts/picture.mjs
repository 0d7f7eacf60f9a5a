// Writes the timelines of a report as SVG to standard output, drawn by the report's own modules:
//   node scripts/picture.mjs report.html > picture.svg

import { readFileSync } from "node:fs";

import { makeApp } from "../src/penstock/report/html/app/ui/app.mjs";
import { makeScene } from "../src/penstock/report/html/app/timeline/scene.mjs";
import { timelineSvg } from "../src/penstock/report/html/app/timeline/svg_export.mjs";

const WIDTH = 980;

const page = readFileSync(process.argv[2], "utf-8");
const [, content] = page.match(/<script type="application\/json" id="data">(.*?)<\/script>/s);
const app = makeApp(JSON.parse(content), "#memory=0");
process.stdout.write(timelineSvg(makeScene(app, { width: WIDTH, height: 0, scroll: 0, dark: false })));
