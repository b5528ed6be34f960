// What vega.min.js.gz holds (docs/decisions/0012-vega-lite.md): Vega-Lite's compiler, Vega's views without maps, forces, hierarchies and
// word clouds, and the interpreter of expressions, which needs no eval. Made by, in an empty folder:
//   npm install vega@6.4.0 vega-lite@6.4.3 vega-interpreter@2.3.2 esbuild@0.28.2
//   npx esbuild vega.entry.js --bundle --minify --format=iife --global-name=vega \
//     --legal-comments=none --alias:vega=vega-util --outfile=vega.min.js
//   gzip -9n vega.min.js
// (vega-lite takes four helpers from "vega" that are vega-util's; the alias leaves the rest out.)
import {extend} from "vega-util";
import {transforms} from "vega-dataflow";
import * as tx from "vega-transforms";
import * as vtx from "vega-view-transforms";
import * as encode from "vega-encode";
extend(transforms, tx, vtx, encode);
export {View} from "vega-view";
export {parse} from "vega-parser";
export {expressionFunction} from "vega-functions";
export {compile} from "vega-lite";
export {expressionInterpreter} from "vega-interpreter";
