#!/usr/bin/env node
"use strict";
// Any Node.js can parse this file, and the rest only a new one: so an old one is told here.
var engines = require("../package.json").engines;
var needed = engines.node.replace(">=", "").split(".").map(Number);
var found = process.versions.node.split(".").map(Number);
if (found[0] < needed[0] || (found[0] === needed[0] && found[1] < needed[1])) {
  // oxlint-disable-next-line no-console -- Nothing else is loaded yet.
  console.error(
    "session-ledger: Node.js " + needed.join(".") + " or newer is needed; this is " + process.versions.node
  );
  process.exit(2);
}
void import("../dist/main.js");
